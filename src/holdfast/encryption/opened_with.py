"""The keys of an encrypted repository, as whoever has opened it sees and changes them."""

from __future__ import annotations

from holdfast.encryption.keeping import Keeper, Rings
from holdfast.encryption.keys import Key

__all__ = ["Keys"]


class Keys:
    """The keys that open an encrypted repository. To change them rewrites nothing that is stored."""

    def __init__(self, keeper: Keeper, key: Key) -> None:
        self._keeper = keeper
        self._key = key

    def __repr__(self) -> str:
        return f"<holdfast keys, opened with {self.used}>"

    @property
    def used(self) -> str:
        """The id of the key that the repository was opened with here."""
        return self._key.id

    def look(self) -> Rings:
        """The ids of all keys that open it, as things stand now."""
        return self._keeper.look()

    def add(self, key: Key) -> None:
        """Let another key open it too, such as one that is kept for emergencies."""
        self._keeper.add(self._key, key)

    def remove(self, key_id: str) -> None:
        """Let a key open it no more; not the one that is used here. Who had it may have kept what it opened."""
        self._keeper.remove(self._key, key_id)

    def rotate(self, key: Key, *others: Key) -> None:
        """Let these keys alone open it, and encrypt all that is written from now on with a new key of its own.

        Whoever has it open goes on as before until it is opened anew, which takes one of these keys.
        """
        self._keeper.rotate(self._key, [key, *others])
