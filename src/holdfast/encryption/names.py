"""Object names that say nothing: pipelines and savepoints are encrypted where they stand in a key.

The same name gives the same text, so that it can be found; the text opens to the name, so that it can be listed. All
else in a key is numbers and words of Holdfast's own, and stays: listings go by their order.
"""

from __future__ import annotations

import base64
from functools import lru_cache

from holdfast.encryption.ciphers import siv
from holdfast.encryption.ring import Ring
from holdfast.errors import BadName
from holdfast.layout import NAME_CHARACTERS, PIPELINES, SAVEPOINTS
from holdfast.store.keys import check_key, check_prefix

__all__ = ["HiddenNames"]

BLOCK = 16
"""Names are padded to whole blocks, so that their text tells little of their length."""

_BASE = len(NAME_CHARACTERS) + 1
_KEPT = 10_000
_PIPELINE = ("pipeline",)


class HiddenNames:
    """Translates keys to what stands in the store, and back."""

    def __init__(self, ring: Ring) -> None:
        self._siv = siv(ring.names_key())
        self._hide = lru_cache(_KEPT)(self._hidden)
        self._show = lru_cache(_KEPT)(self._shown)

    def hide(self, key: str) -> str:
        """The key of an object as it stands in the store. Raises BadName for what is no key."""
        return self._translated(check_key(key))

    def hide_prefix(self, prefix: str) -> str:
        return self._translated(check_prefix(prefix))

    def show(self, key: str) -> str | None:
        """The key that a key in the store stands for; None if it was never made here."""
        parts = key.split("/")
        if _has_pipeline(parts):
            name = self._show(_PIPELINE, parts[1])
            if name is None:
                return None
            parts[1] = name
        if _has_savepoint(parts):
            savepoint = self._show(_of(parts[1]), parts[3])
            if savepoint is None:
                return None
            parts[3] = savepoint
        return "/".join(parts)

    def keeps_order(self, prefix: str) -> bool:
        """Whether the keys below a prefix have the same order in the store as here."""
        parts = prefix.split("/")
        if f"{parts[0]}/" != PIPELINES:
            return bool(prefix)
        return len(parts) > 3 and (parts[2] != SAVEPOINTS or _has_savepoint(parts))

    def _translated(self, key: str) -> str:
        parts = key.split("/")
        if _has_savepoint(parts):
            parts[3] = self._hide(_of(parts[1]), parts[3])
        if _has_pipeline(parts):
            parts[1] = self._hide(_PIPELINE, parts[1])
        return "/".join(parts)

    def _hidden(self, kind: tuple[str, ...], name: str) -> str:
        sealed = self._siv.encrypt(_packed(kind[0], name), [part.encode() for part in kind])
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def _shown(self, kind: tuple[str, ...], text: str) -> str | None:
        from cryptography.exceptions import InvalidTag

        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            name = _unpacked(self._siv.decrypt(sealed, [part.encode() for part in kind]))
        except (InvalidTag, ValueError):
            return None
        # Several texts decode to the same bytes; only the one that is written here is a name.
        return name if self._hide(kind, name) == text else None


def _has_pipeline(parts: list[str]) -> bool:
    return f"{parts[0]}/" == PIPELINES and len(parts) > 2


def _has_savepoint(parts: list[str]) -> bool:
    return _has_pipeline(parts) and parts[2] == SAVEPOINTS and len(parts) > 4


def _of(pipeline: str) -> tuple[str, ...]:
    """A savepoint's name is bound to its pipeline: the same one in another has another text."""
    return "savepoint", pipeline


def _packed(kind: str, name: str) -> bytes:
    """A name in as few bytes as it takes, padded: 200 characters must still fit into the name of a file."""
    number = 0
    for character in name:
        at = NAME_CHARACTERS.find(character)
        if at < 0:
            raise BadName(kind, name)
        number = number * _BASE + at + 1
    size = -(-number.bit_length() // (8 * BLOCK)) * BLOCK
    return number.to_bytes(size, "big")


def _unpacked(data: bytes) -> str:
    number, found = int.from_bytes(data, "big"), []
    while number:
        number, digit = divmod(number, _BASE)
        if not digit:
            raise ValueError("no name")
        found.append(NAME_CHARACTERS[digit - 1])
    return "".join(reversed(found))
