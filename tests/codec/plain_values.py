"""Every plain value that the codec takes, for hypothesis, and a comparison that no `==` is strict enough for."""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import datetime, time, timedelta, timezone
from zlib import crc32
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

ZONES = st.one_of(
    st.none(),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kolkata"]).map(ZoneInfo),
    st.builds(
        timezone,
        st.timedeltas(timedelta(hours=-23), timedelta(hours=23)),
    ),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), st.text()),
)

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**63) - 3, -(2**63) + 3),
    st.integers(2**63 - 3, 2**63 + 3),
    st.floats(),
    st.text(st.characters(codec=None, exclude_categories=())),
    st.binary(),
    st.binary().map(bytearray),
    st.decimals(),
    st.uuids(),
    st.dates(),
    st.timedeltas(),
    st.builds(lambda t, zone, fold: t.replace(tzinfo=zone, fold=fold), st.times(), ZONES, st.integers(0, 1)),
    st.builds(lambda d, zone, fold: d.replace(tzinfo=zone, fold=fold), st.datetimes(), ZONES, st.integers(0, 1)),
)

HASHABLE = st.recursive(
    LEAVES.filter(lambda leaf: type(leaf) is not bytearray and not _signals(leaf)),
    lambda inner: st.one_of(st.lists(inner, max_size=4).map(tuple), st.frozensets(inner, max_size=4)),
    max_leaves=6,
)

VALUES = st.recursive(
    st.one_of(LEAVES, HASHABLE),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(HASHABLE, inner, max_size=5),
        st.sets(HASHABLE, max_size=5),
        st.dictionaries(HASHABLE, inner, max_size=5).map(OrderedDict),
        st.dictionaries(HASHABLE, inner, max_size=5).map(lambda d: defaultdict(list, d)),
        st.dictionaries(HASHABLE, st.integers(), max_size=5).map(Counter),
        st.builds(deque, st.lists(inner, max_size=5), st.one_of(st.none(), st.integers(0, 9))),
    ),
    max_leaves=20,
)


def _signals(leaf: object) -> bool:
    return hasattr(leaf, "is_snan") and leaf.is_snan()


def identical(a: object, b: object) -> bool:
    """Same types, same order, same bits: 1 is not True, 0.0 is not -0.0, NaN is NaN, a fold is a fold."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, (datetime, time)):
        return repr(a) == repr(b) and a.fold == b.fold and a.tzname() == b.tzname()
    if isinstance(a, dict):
        return (
            len(a) == len(b)
            and all(identical(x, y) for x, y in zip(a.items(), b.items(), strict=True))
            and getattr(a, "default_factory", None) is getattr(b, "default_factory", None)
        )
    if isinstance(a, (list, tuple, deque)):
        same = len(a) == len(b) and all(identical(x, y) for x, y in zip(a, b, strict=True))
        return same and getattr(a, "maxlen", None) == getattr(b, "maxlen", None)
    if isinstance(a, (set, frozenset)):
        left = list(b)
        for x in a:
            found = next((i for i, y in enumerate(left) if identical(x, y)), None)
            if found is None:
                return False
            del left[found]
        return not left
    return repr(a) == repr(b)


def sealed(body: bytes, version: int = 1) -> bytes:
    """A value with a right checksum around a body that may be nonsense."""
    head = b"HFv" + bytes([version]) + body
    return head + struct.pack("<I", crc32(head))
