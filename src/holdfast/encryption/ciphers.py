"""The ciphers, and the only place that talks to `cryptography`, which is an extra."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from holdfast.errors import LibraryMissing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV

__all__ = ["derive", "derive_long", "gcm", "require_ciphers", "siv"]


def derive(secret: bytes, purpose: bytes, *parts: bytes) -> bytes:
    """A key of 32 bytes for one purpose, by HMAC-SHA-256. All parts but the last must have a fixed length."""
    return hmac.digest(secret, b"".join((purpose, b"\0", *parts)), "sha256")


def derive_long(secret: bytes, purpose: bytes) -> bytes:
    """A key of 64 bytes, by HMAC-SHA-512."""
    return hmac.digest(secret, purpose + b"\0", "sha512")


def gcm(key: bytes) -> AESGCM:
    """AES-256-GCM. A key and a nonce must never meet twice."""
    require_ciphers()
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def siv(key: bytes) -> AESSIV:
    """AES-256-SIV: the same text gives the same bytes, as names need it."""
    require_ciphers()
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    return AESSIV(key)


def require_ciphers() -> None:
    """Raise LibraryMissing if `cryptography` is not here."""
    try:
        import cryptography  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise LibraryMissing("holdfast[encryption]", "an encrypted repository", str(error)) from error
