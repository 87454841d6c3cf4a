"""Which keys and prefixes every store takes, so that none can leave its root or mean two things."""

from __future__ import annotations

import re

from holdfast.errors import BadName

__all__ = ["check_key", "check_prefix"]

# Segments that are neither empty nor "." nor "..", without control characters; Spark's own file names all pass.
SEGMENT = r"(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f\\]+"
KEY = re.compile(rf"{SEGMENT}(?:/{SEGMENT})*", re.ASCII)


def check_key(key: str) -> str:
    """Give the key back if it names an object below the root; raise BadName if not."""
    if not KEY.fullmatch(key):
        raise BadName("object in a store", key)
    return key


def check_prefix(prefix: str) -> str:
    """Give the prefix back if it is empty or ends in `/`; raise BadName if not.

    A prefix in the middle of a name would match on one store and not on another.
    """
    if prefix and not (prefix.endswith("/") and KEY.fullmatch(prefix, 0, len(prefix) - 1)):
        raise BadName("folder in a store", prefix)
    return prefix
