from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders import plain_manifest
from holdfast.decide.usage import usage
from holdfast.layout import Slot

SIZES = {f"data/{n}": 10**n for n in range(6)}


def own(slot: Slot) -> str:
    return f"checkpoints/{slot}.json"


def test_bytes_are_shared_when_two_checkpoints_name_them_and_exclusive_when_one_does() -> None:
    first = plain_manifest(Slot(0, 0), objects={"data/a": 1, "data/b": 10})
    second = plain_manifest(Slot(0, 1), objects={"data/b": 10, "data/c": 100})
    stored = {"data/a": 1, "data/b": 10, "data/c": 100, "data/left": 1000, "first.json": 20_000, "second.json": 30_000}
    found = usage([("first.json", first), ("second.json", second)], stored)
    assert [(c.slot, c.exclusive, c.shared, c.total) for c in found.checkpoints] == [
        (Slot(0, 0), 20_001, 10, 20_011),
        (Slot(0, 1), 30_100, 10, 30_110),
    ]
    assert (found.total, found.shared, found.loose, found.records) == (51_111, 10, 1000, 0)


def test_what_is_neither_data_nor_a_manifest_is_a_record_and_so_is_the_rebuilt_index_of_a_pack() -> None:
    manifest = plain_manifest(Slot(0, 0), objects={"data/pack": 1})
    stored = {"data/pack": 1, "data/pack.index": 10, "data/gone.index": 100, "latest.json": 1000}
    found = usage([("own.json", manifest)], stored)
    assert (found.loose, found.records) == (100, 1010)


def test_nothing_costs_nothing() -> None:
    assert usage([], {}).total == 0


@given(st.lists(st.sets(st.sampled_from(sorted(SIZES))), max_size=5), st.sets(st.sampled_from(sorted(SIZES))))
def test_the_parts_add_up_to_the_whole(named: list[set[str]], also_stored: set[str]) -> None:
    manifests = [plain_manifest(Slot(0, n), objects={p: SIZES[p] for p in paths}) for n, paths in enumerate(named)]
    stored = {path: SIZES[path] for path in set().union(also_stored, *named)}
    stored |= {own(manifest.at): 7 for manifest in manifests} | {"pipeline.json": 3}
    found = usage([(own(manifest.at), manifest) for manifest in manifests], stored)
    assert found.total == sum(stored.values())
    assert found.total == found.loose + found.shared + found.records + sum(c.exclusive for c in found.checkpoints)
