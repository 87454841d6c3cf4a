from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders import plain_manifest
from holdfast.decide.usage import usage
from holdfast.layout import Slot

SIZES = {f"path-{n}": 10**n for n in range(6)}


def test_bytes_are_shared_when_two_checkpoints_name_them_and_exclusive_when_one_does() -> None:
    first = plain_manifest(Slot(0, 0), objects={"a": 1, "b": 10})
    second = plain_manifest(Slot(0, 1), objects={"b": 10, "c": 100})
    found = usage([first, second], {"a": 1, "b": 10, "c": 100, "left": 1000})
    assert [(c.slot, c.exclusive, c.shared, c.total) for c in found.checkpoints] == [
        (Slot(0, 0), 1, 10, 11),
        (Slot(0, 1), 100, 10, 110),
    ]
    assert (found.total, found.shared, found.loose) == (1111, 10, 1000)


def test_nothing_costs_nothing() -> None:
    assert usage([], {}).total == 0


@given(st.lists(st.sets(st.sampled_from(sorted(SIZES))), max_size=5), st.sets(st.sampled_from(sorted(SIZES))))
def test_the_parts_add_up_to_the_whole(named: list[set[str]], also_stored: set[str]) -> None:
    manifests = [plain_manifest(Slot(0, n), objects={p: SIZES[p] for p in paths}) for n, paths in enumerate(named)]
    stored = {path: SIZES[path] for path in set().union(also_stored, *named)}
    found = usage(manifests, stored)
    assert found.total == sum(stored.values())
    assert found.total == found.loose + found.shared + sum(c.exclusive for c in found.checkpoints)
