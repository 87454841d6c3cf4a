"""The keys of one repository: numbered, drawn at random, and kept wrapped by the keys of its users.

A rotation adds a key for what is written from then on; what was written before is read with the one that it names.
"""

from __future__ import annotations

import base64
import secrets
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.encryption.ciphers import derive, derive_long, gcm, require_ciphers
from holdfast.encryption.keys import Key
from holdfast.errors import DamagedRecord
from holdfast.records import Record

__all__ = ["SCHEME", "Ring", "RingRecord", "unwrap", "wrap"]

SCHEME = "hfe1-aes-256-gcm"

SIZE = 32
SALT = 24
_ENTRY = struct.Struct(f">I{SIZE}s")
_ONCE = bytes(12)
"""The nonce where a key is used a single time."""


@dataclass(frozen=True)
class Ring:
    """A repository's own keys by number; new objects get the highest. It is not shown."""

    keys: Mapping[int, bytes] = field(repr=False)

    @classmethod
    def new(cls) -> Ring:
        require_ciphers()
        return cls({1: secrets.token_bytes(SIZE)})

    def grown(self) -> Ring:
        """The same with one key more, for all that is written from now on."""
        return Ring({**self.keys, self.newest + 1: secrets.token_bytes(SIZE)})

    @property
    def newest(self) -> int:
        return max(self.keys)

    def object_key(self, number: int, salt: bytes, name: str) -> bytes:
        """The key of one writing of one object. Raises KeyError for a number that the ring does not have."""
        return derive(self.keys[number], b"holdfast object", salt, name.encode())

    def names_key(self) -> bytes:
        """The key of the names. It is made from the first key, so that a rotation renames nothing."""
        return derive_long(self.keys[min(self.keys)], b"holdfast names")


class RingRecord(Record, frozen=True):
    """One state of a repository's keys: wrapped once for each key that opens it. The highest number counts."""

    kind = "keys"
    number: int
    created_ms: int
    wrapped: dict[str, str]
    newest: int = 1


def wrap(ring: Ring, keys: Iterable[Key], repository_id: str) -> dict[str, str]:
    """The ring, wrapped for each key, by the key's id."""
    body = b"".join(_ENTRY.pack(n, ring.keys[n]) for n in sorted(ring.keys))
    found: dict[str, str] = {}
    for key in keys:
        salt = secrets.token_bytes(SALT)
        sealed = gcm(key.wrapping(salt)).encrypt(_ONCE, body, _bound(key, repository_id))
        found[key.id] = base64.b64encode(salt + sealed).decode()
    return found


def unwrap(where: str, record: RingRecord, key: Key, repository_id: str) -> Ring:
    """The ring as it was wrapped for this key, which the record must name. DamagedRecord if it does not open."""
    require_ciphers()
    from cryptography.exceptions import InvalidTag

    try:
        data = base64.b64decode(record.wrapped[key.id], validate=True)
        aead = gcm(key.wrapping(data[:SALT]))
        body = aead.decrypt(_ONCE, data[SALT:], _bound(key, repository_id))
        ring = Ring(dict(_ENTRY.iter_unpack(body)))
    except (InvalidTag, ValueError, struct.error) as error:
        raise DamagedRecord(where, "the wrapped keys do not open, or belong to another repository") from error
    if not ring.keys:
        raise DamagedRecord(where, "it wraps no key at all")
    if ring.newest != record.newest:
        raise DamagedRecord(where, f"it wraps keys up to number {ring.newest}, and says {record.newest}")
    return ring


def _bound(key: Key, repository_id: str) -> bytes:
    """What a wrapping is bound to, so that it is of no use in another repository."""
    return f"{SCHEME}\n{repository_id}\n{key.id}".encode()
