from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from builders import PACKED, keys, make_repo, save, start, state
from holdfast.draft import PartitionState
from holdfast.errors import DamagedRecord, StoreUnavailable
from holdfast.ids import new_token
from holdfast.layout import PipelineKeys, Slot
from holdfast.manifest import Artifact
from holdfast.repository.artifacts import load_artifact
from holdfast.repository.uploads import Limits, Upload
from holdfast.store import Buffer, Store, open_store
from holdfast.testing.faults import Around, CountingStore

KEYS = PipelineKeys("orders")
Pool = ThreadPoolExecutor


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def upload(store: Store, pool: ThreadPoolExecutor, **limits: int) -> Upload:
    return Upload(store, KEYS, KEYS.upload(3, new_token()), Limits(**limits), pool)


def add(to: Upload, data: Buffer) -> Artifact:
    return to.add(data, hashlib.sha256(data).hexdigest())


class FailingOnce(Around):
    """The first create of a pack does not get through."""

    failed = False

    def create(self, key: str, data: Buffer) -> bool:
        if "pack-" in key and not self.failed:
            self.failed = True
            raise StoreUnavailable(self.url, "create", 60.0, "the line is down")
        return super().create(key, data)


@pytest.mark.parametrize(("partitions", "concurrency"), [(100, 4), (100, 1), (3, 4)])
def test_with_more_uploads_than_the_limit_every_partition_is_in_the_manifest(partitions: int, concurrency: int) -> None:
    """A hundred partitions, four at a time: finished results must never be dropped."""
    repo = make_repo()
    with start(repo, limits=Limits(inline=0, single=200, concurrency=concurrency)) as run:
        draft = run.begin(1)
        # Half of them go out as objects of their own while others still run.
        states = [PartitionState("count", p, state(1, p, 100 + 200 * (p % 2))) for p in range(partitions)]
        saved = run.save_partitions(draft, states)
        manifest = run.save_manifest(draft)
    assert [a.size_bytes for a in saved] == [len(s.data) for s in states]
    assert sorted(manifest.operators["count"]) == list(range(partitions))
    pipeline = repo.pipeline("orders")
    loaded = {p: load_artifact(repo.store, KEYS, chain[0]) for p, chain in manifest.operators["count"].items()}
    assert loaded == {s.partition: s.data for s in states}
    assert pipeline.check(read_percent=100).damaged == []


def test_saving_from_many_threads_at_once_loses_nothing() -> None:
    repo = make_repo()
    with start(repo, limits=Limits(inline=10, single=150)) as run, ThreadPoolExecutor(16) as threads:
        draft, gate = run.begin(1), Barrier(16)

        def work(thread: int) -> None:
            gate.wait()
            for n in range(20):
                run.save_snapshot(draft, f"op-{thread % 4}", thread * 20 + n, state(thread, n, size=5 + 20 * (n % 10)))

        for done in [threads.submit(work, thread) for thread in range(16)]:
            done.result()
        manifest = run.save_manifest(draft)
        assert sum(map(len, manifest.operators.values())) == 320
        for thread in range(16):
            for n in range(20):
                [data] = run.load_partition(manifest, f"op-{thread % 4}", thread * 20 + n)
                assert data == state(thread, n, size=5 + 20 * (n % 10))


def test_state_at_the_threshold_is_inline_and_one_byte_more_is_not(
    memory_store: Store, pool: ThreadPoolExecutor
) -> None:
    into = upload(memory_store, pool, inline=10)
    at, above = add(into, b"x" * 10), add(into, b"y" * 11)
    assert at.inline is not None
    assert at.path is None
    assert above.inline is None
    assert above.path == f"{into.prefix}pack-0"
    assert load_artifact(memory_store, KEYS, at) == b"x" * 10


def test_inline_states_together_stay_under_their_total(memory_store: Store, pool: Pool) -> None:
    into = upload(memory_store, pool, inline=10, inline_total=35)
    places = [add(into, bytes([n]) * 10).inline is not None for n in range(5)] + [
        add(into, b"12345").inline is not None
    ]
    assert places == [True, True, True, False, False, True]


def test_an_empty_state_is_a_state(memory_store: Store, pool: Pool) -> None:
    into = upload(memory_store, pool, inline=0)
    artifact = add(into, b"")
    into.finish()
    assert load_artifact(memory_store, KEYS, artifact) == b""


def test_a_pack_is_closed_when_it_is_full_and_the_next_begins(memory_store: Store, pool: Pool) -> None:
    into = upload(memory_store, pool, inline=0, pack=100)
    artifacts = [add(into, bytes([n]) * 30) for n in range(7)]
    objects = into.finish()
    assert [a.path for a in artifacts] == [f"{into.prefix}pack-{n}" for n in (0, 0, 0, 1, 1, 1, 2)]
    assert objects == {
        path: len(memory_store.get(KEYS.prefix + path)) for path in {a.path for a in artifacts if a.path}
    }
    for n, artifact in enumerate(artifacts):
        assert load_artifact(memory_store, KEYS, artifact) == bytes([n]) * 30


def test_something_larger_than_a_pack_still_finds_its_place(memory_store: Store, pool: Pool) -> None:
    into = upload(memory_store, pool, inline=0, pack=50, single=1000)
    artifact = add(into, b"z" * 80)
    assert list(into.finish()) == [f"{into.prefix}pack-0"]
    assert load_artifact(memory_store, KEYS, artifact) == b"z" * 80


def test_a_large_artifact_is_an_object_of_its_own(memory_store: Store, pool: Pool) -> None:
    into = upload(memory_store, pool, single=1000)
    artifacts = [add(into, bytes([n]) * (1000 + n)) for n in range(3)]
    assert into.finish() == {f"{into.prefix}artifact-{n}": 1000 + n for n in range(3)}
    assert all(a.offset is None and a.length is None for a in artifacts)


def test_a_stream_becomes_one_object_with_its_digest(memory_store: Store, pool: Pool) -> None:
    into = upload(memory_store, pool)
    artifact = into.add_stream(b"abc" for _ in range(1000))
    assert into.finish() == {artifact.path: 3000}
    assert load_artifact(memory_store, KEYS, artifact) == b"abc" * 1000


def test_a_stream_that_breaks_leaves_nothing_to_name(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    def broken() -> Iterator[bytes]:
        yield b"abc"
        raise RuntimeError("the source broke")

    store = open_store(str(tmp_path))
    into = upload(store, pool)
    with pytest.raises(RuntimeError):
        into.add_stream(broken())
    assert into.finish() == {}
    assert keys(store) == []


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: memoryview(bytearray(data))])
def test_any_buffer_can_be_saved_and_a_small_mutable_one_changed_at_once(
    memory_store: Store, pool: ThreadPoolExecutor, kind: Callable[[bytes], Buffer]
) -> None:
    into = upload(memory_store, pool, inline=0, single=1000)
    small, large = kind(b"s" * 100), kind(b"l" * 2000)
    artifacts = [add(into, small), add(into, large)]
    if isinstance(small, bytearray):
        small[:] = b"!" * 100
    into.finish()
    assert [load_artifact(memory_store, KEYS, a) for a in artifacts] == [b"s" * 100, b"l" * 2000]


def test_no_two_uploads_share_a_name(memory_store: Store, pool: Pool) -> None:
    prefixes = {upload(memory_store, pool).prefix for _ in range(100)}
    assert len(prefixes) == 100
    assert all(prefix.startswith("data/0000000003-") and prefix.endswith("/") for prefix in prefixes)


def test_a_name_that_already_holds_other_bytes_is_never_written_over(
    memory_store: Store, pool: ThreadPoolExecutor
) -> None:
    into = upload(memory_store, pool, inline=0)
    artifact = add(into, b"mine" * 10)
    memory_store.create(f"{KEYS.prefix}{artifact.path}", b"theirs")
    with pytest.raises(DamagedRecord):
        into.finish()
    assert memory_store.get(f"{KEYS.prefix}{artifact.path}") == b"theirs"


def test_an_upload_that_failed_stays_failed(memory_store: Store, pool: Pool) -> None:
    into = upload(FailingOnce(memory_store), pool, inline=0)
    add(into, b"x" * 100)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            into.finish()


def test_a_draft_whose_bytes_did_not_arrive_can_not_be_published_by_trying_again() -> None:
    store = FailingOnce(open_store("memory://"))
    repo = make_repo(store)
    with start(repo) as run:
        draft = run.begin(1)
        run.save_snapshot(draft, "count", 0, state(1))
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                run.save_manifest(draft)
        assert repo.pipeline("orders").checkpoints() == []
        save(run, 1)
    assert repo.pipeline("orders").check(read_percent=100).damaged == []


# ---- what a checkpoint shares with the one before ----


def test_unchanged_bytes_are_not_uploaded_again_wherever_they_are_saved() -> None:
    repo = make_repo()
    with start(repo) as run:
        first = save(run, 1, {0: state(1, 0), 1: state(1, 1)})
        second = save(run, 2, {0: state(1, 1), 1: state(2, 1)})
    assert second.operators["count"][0][0].path == first.operators["count"][1][0].path
    assert second.operators["count"][0][0].offset == first.operators["count"][1][0].offset
    assert second.byte_counts() == (100, 100)
    assert len(keys(repo.store, "pack-")) == 2


def test_a_checkpoint_that_changes_nothing_uploads_nothing() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 1)
        before = keys(repo.store, "data/")
        save(run, 2, {0: state(1)})
    assert keys(repo.store, "data/") == before


def test_only_what_the_newest_checkpoint_names_is_shared() -> None:
    """Bytes of an older checkpoint may be pruned at any moment: they are uploaded anew."""
    repo = make_repo()
    with start(repo) as run:
        first = save(run, 1, {0: state(1)})
        save(run, 2, {0: state(2)})
        third = save(run, 3, {0: state(1)})
    assert third.operators["count"][0][0].path != first.operators["count"][0][0].path


def test_partitions_that_are_carried_stay_where_they_are() -> None:
    repo = make_repo()
    with start(repo) as run:
        first = save(run, 1, 3)
        second = save(run, 2, {1: state(2, 1)}, carry=True)
        third = save(run, 3, {0: state(3)})
    assert second.operators["count"][0] == first.operators["count"][0]
    assert sorted(second.operators["count"]) == [0, 1, 2]
    assert sorted(third.operators["count"]) == [0]


def test_a_pack_less_than_a_quarter_alive_is_carried_forward() -> None:
    repo = make_repo()
    with start(repo) as run:
        old = save(run, 0, 20)
        dying = next(iter(old.objects))
        alive = []
        for epoch in range(1, 20):
            manifest = save(run, epoch, {epoch: state(epoch, epoch)}, carry=True)
            alive.append(dying in manifest.objects)
            assert [run.load_partition(manifest, "count", p) for p in range(20)] == [
                [state(p if 0 < p <= epoch else 0, p)] for p in range(20)
            ]
    members, size = 100, old.objects[dying]
    still = [4 * members * (20 - epoch) >= size for epoch in range(1, 20)]
    assert alive == still
    assert False in alive


def test_what_moves_out_of_a_dying_pack_keeps_its_place_in_its_chain() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0, 20)
        draft = run.begin(1, carry=True)
        for p in range(1, 20):
            run.save_snapshot(draft, "count", p, state(1, p))
        run.save_delta(draft, "count", 0, b"delta" * 10)
        manifest = run.save_manifest(draft)
        assert len(manifest.objects) == 1
        assert manifest.validate() == [f for f in manifest.validate() if f.severity == "warning"]
        assert run.load_partition(manifest, "count", 0) == [state(0, 0), b"delta" * 10]


def test_a_large_object_is_never_carried_forward() -> None:
    repo = make_repo()
    with start(repo, limits=Limits(inline=0, single=50)) as run:
        first = save(run, 0, {0: state(0, 0, 500)})
        second = save(run, 1, {1: state(1, 1, 20)}, carry=True)
    assert second.operators["count"][0] == first.operators["count"][0]


@pytest.mark.parametrize("partitions", [2, 2000])
def test_a_checkpoint_costs_six_requests_however_many_partitions_there_are(partitions: int) -> None:
    store = CountingStore(open_store("memory://"))
    with start(make_repo(store)) as run:
        save(run, 0, partitions)
        store.reset()
        save(run, 1, partitions)
    # A look for requests, a pack, the manifest, the look for a claim, the look for a decision, the hint.
    assert (store.total, store.counts["create"], store.counts["put"]) == (6, 2, 1)


def test_each_large_artifact_costs_one_request_more() -> None:
    store = CountingStore(open_store("memory://"))
    with start(make_repo(store), limits=Limits(inline=0, single=1000)) as run:
        save(run, 0)
        store.reset()
        save(run, 1, {0: b"s" * 10, 1: b"a" * 1000, 2: b"b" * 1000})
    assert store.counts["create"] == 4
    assert store.total == 8


def test_the_packed_limits_of_these_tests_put_no_state_inline() -> None:
    with start(make_repo(), limits=PACKED) as run:
        assert save(run, 0).operators["count"][0][0].path is not None
        assert run.tip is not None
        assert run.tip.at == Slot(0, 0)
