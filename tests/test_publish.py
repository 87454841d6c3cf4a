from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from builders import NAME, PACKED, Table, dump, epochs, filled, keys, look, make_repo, save, sinking, start, state
from holdfast.checkpointer import Checkpointer
from holdfast.draft import Description, PartitionState
from holdfast.errors import Fenced, InvalidManifest, OutcomeUnknown, Overtaken, StoreUnavailable, Unsettled
from holdfast.handles import Repository, open_url
from holdfast.ids import new_token
from holdfast.layout import Slot, parse
from holdfast.manifest import Manifest, SinkStatus
from holdfast.names import ask, waiting_requests
from holdfast.publish import Publisher
from holdfast.records import Decision, VoidSlot
from holdfast.store import Buffer, Store, open_store
from holdfast.testing.faults import Around, CountingStore, LateStore


def beside(repo: Repository, run: Checkpointer) -> Publisher:
    """Another publisher of the same generation, such as a capture beside a watch."""
    return Publisher(look(repo).records, run.generation, run.tip, PACKED)


def publish(publisher: Publisher, epoch: int, data: bytes | None = None) -> Manifest:
    draft = publisher.begin(epoch)
    draft.save_partition(PartitionState("count", 0, data or state(epoch)))
    return publisher.publish(draft, Description())


def kind_of(key: str) -> str:
    named = parse(key.removeprefix("pipelines/orders/"))
    return named.what if named else key


class Lost(LateStore):
    """Loses the replies of creates of manifests while `losing`."""

    losing = False

    def __init__(self, store: Store) -> None:
        super().__init__(store, lambda key: self.losing and "checkpoints/" in key)


def test_checkpoints_take_the_slots_in_order_and_name_their_parent() -> None:
    repo = filled(3)
    manifests = [checkpoint.manifest for checkpoint in look(repo).checkpoints()]
    assert [m.at for m in manifests] == [Slot(0, 0), Slot(0, 1), Slot(0, 2)]
    assert [m.parent.checkpoint_id if m.parent else None for m in manifests] == [
        None,
        manifests[0].checkpoint_id,
        manifests[1].checkpoint_id,
    ]


def test_the_bytes_are_there_before_the_manifest_and_the_look_comes_after_it() -> None:
    order: list[str] = []

    class Watching(Around):
        def create(self, key: str, data: Buffer) -> bool:
            order.append("create " + kind_of(key))
            return super().create(key, data)

        def get(self, key: str) -> bytes:
            order.append("get " + kind_of(key))
            return super().get(key)

        def put(self, key: str, data: Buffer) -> None:
            order.append("put " + kind_of(key))
            super().put(key, data)

    inner = open_store("memory://")
    filled(1, inner)
    with start(open_url(Watching(inner))) as run:
        save(run, 1)
        order.clear()
        save(run, 2)
    assert order[:2] == ["create data", "create manifest"]
    assert order.index("create manifest") < order.index("get claim") < order.index("put latest")


def test_a_zombie_that_wrote_after_the_take_over_is_told_so_and_nothing_it_wrote_counts() -> None:
    """Check, pause, write: the look for the higher claim comes after the write, so the pause can't hide it."""
    repo = filled(2)
    with start(repo) as old:
        save(old, 2)
        draft = old.begin(3)
        old.save_snapshot(draft, "count", 0, b"zombie")
        with start(repo) as new:
            with pytest.raises(Fenced) as fenced:
                old.save_manifest(draft)
            assert (fenced.value.pipeline, fenced.value.generation) == (NAME, 1)
            assert epochs(look(repo)) == [0, 1, 2]
            save(new, 3)
        assert [(c.epoch, c.slot) for c in look(repo).checkpoints()][-1] == (3, Slot(2, 0))


def test_once_fenced_a_publisher_writes_nothing_more() -> None:
    repo = filled(1)
    with start(repo) as old, start(repo):
        with pytest.raises(Fenced):
            save(old, 5)
        before = dump(repo.store)
        with pytest.raises(Fenced):
            save(old, 6)
        assert dump(repo.store) == before


def test_two_publishers_of_one_generation_take_turns_and_lose_nothing() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0)
        capture = beside(repo, run)
        save(run, 1)
        second = publish(capture, 2)
        third = save(run, 3)
        capture.close()
    assert (second.at, third.at) == (Slot(0, 2), Slot(0, 3))
    assert second.parent is not None
    assert second.parent.slot == 1
    assert epochs(look(repo)) == [0, 1, 2, 3]
    assert look(repo).check(read_percent=100).damaged == []


def test_after_a_lost_slot_only_bytes_that_the_winner_names_are_shared() -> None:
    """The bytes of the old parent may be pruned by now; they are brought in anew from what was verified."""
    repo = make_repo()
    with start(repo) as run:
        first = save(run, 0, {0: state(0)})
        capture = beside(repo, run)
        draft = capture.begin(9)
        kept = draft.save_partition(PartitionState("count", 0, state(0)))
        assert kept.path == first.operators["count"][0][0].path
        winner = save(run, 1, {0: state(1)})
        loser = capture.publish(draft, Description())
        capture.close()
    assert loser.at == Slot(0, 2)
    assert set(loser.objects) & set(first.objects) == set()
    assert loser.parent is not None
    assert loser.parent.checkpoint_id == winner.checkpoint_id
    assert look(repo).check(read_percent=100).damaged == []


def test_a_slot_that_is_void_is_passed_over() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0)
        records = look(repo).records
        records.create(records.keys.manifest(Slot(0, 1)), VoidSlot(token=new_token(), generation=0, slot=1))
        assert save(run, 1).at == Slot(0, 2)
    assert epochs(look(repo)) == [0, 1]


def test_a_slot_that_was_taken_pruned_and_deleted_meanwhile_does_not_count() -> None:
    """The key is free again when we get there; what lands on it counts for nothing, so the next slot is taken."""
    repo = make_repo()
    with start(repo) as run:
        save(run, 0)
        records = look(repo).records
        records.create(records.keys.decision(Slot(0, 1)), Decision(token=new_token(), generation=0, slot=1, objects=[]))
        assert save(run, 1).at == Slot(0, 2)
    assert [c.slot for c in look(repo).checkpoints()] == [Slot(0, 0), Slot(0, 2)]


def test_a_create_whose_reply_was_lost_and_that_never_landed_is_sent_again_with_the_same_bytes() -> None:
    store = Lost(open_store("memory://"))
    repo = make_repo(store)
    with start(repo) as run:
        save(run, 0)
        store.losing = True
        with pytest.raises(OutcomeUnknown):
            save(run, 1)
        assert epochs(look(repo)) == [0]
        store.losing = False
        save(run, 2)
        assert store.land() == []
    assert epochs(look(repo)) == [0, 1, 2]
    assert look(repo).check(read_percent=100).damaged == []


def test_a_create_whose_reply_was_lost_but_that_landed_is_our_own_and_not_a_lost_race() -> None:
    store = Lost(open_store("memory://"))
    repo = make_repo(store)
    with start(repo) as run:
        save(run, 0)
        store.losing = True
        with pytest.raises(OutcomeUnknown):
            save(run, 1)
        store.losing = False
        assert len(store.land()) == 1
        assert save(run, 2).at == Slot(0, 2)
    assert epochs(look(repo)) == [0, 1, 2]


def test_a_lost_create_that_lands_after_the_take_over_counts_for_nothing() -> None:
    store = Lost(open_store("memory://"))
    repo = make_repo(store)
    with start(repo) as run:
        save(run, 0)
        store.losing = True
        with pytest.raises(OutcomeUnknown):
            save(run, 1)
        store.losing = False
        with start(repo) as new:
            store.land()
            save(new, 7)
            assert epochs(look(repo)) == [0, 7]
        with pytest.raises(Fenced):
            save(run, 2)


def test_an_unknown_outcome_is_settled_before_anything_else_even_by_settle_alone() -> None:
    store = Lost(open_store("memory://"))
    repo = make_repo(store)
    with start(repo) as run:
        store.losing = True
        with pytest.raises(OutcomeUnknown):
            save(run, 0)
        store.losing = False
        assert run.settle() is None
        assert epochs(look(repo)) == [0]


def test_a_hint_that_can_not_be_written_does_not_undo_the_checkpoint() -> None:
    class NoHints(Around):
        def put(self, key: str, data: Buffer) -> None:
            raise StoreUnavailable(self.url, "put", 60.0, "no")

    repo = make_repo(NoHints(open_store("memory://")))
    with start(repo) as run:
        assert save(run, 0).at == Slot(0, 0)
        assert run.read_latest() == Slot(0, 0)
    assert keys(repo.store, "latest") == []


def test_nothing_is_published_past_a_checkpoint_whose_sinks_are_not_committed() -> None:
    table = Table()
    with start(make_repo(), sinks={"table": table}) as run:
        table.failing = RuntimeError("full")
        with pytest.raises(Exception, match="full"):
            save(run, 0, about=sinking(0, table=table))
        with pytest.raises(Unsettled):
            save(run, 1, about=sinking(1, table=table))
        table.failing = None
        run.settle()
        save(run, 1, about=sinking(1, table=table))
    assert table.committed == [0, 1]


def test_sinks_that_are_committed_already_hold_nothing_up() -> None:
    with start(make_repo()) as run:
        for epoch in range(2):
            save(run, epoch, about=Description(sinks={"table": SinkStatus(status="committed")}))


def test_publishing_from_several_threads_gives_every_draft_a_slot_of_its_own_or_says_it_was_overtaken() -> None:
    repo = make_repo()

    def attempt(epoch: int) -> int | None:
        try:
            return save(run, epoch).at.number
        except Overtaken:
            return None

    with start(repo) as run, ThreadPoolExecutor(8) as threads:
        slots = dict(enumerate(threads.map(attempt, range(16))))
    published = {epoch: slot for epoch, slot in slots.items() if slot is not None}
    assert sorted(published.values()) == list(range(len(published)))
    assert epochs(look(repo)) == sorted(published)
    assert look(repo).check(read_percent=100).damaged == []


def test_an_older_epoch_never_becomes_the_newest() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 5)
        capture = beside(repo, run)
        save(run, 7)
        for epoch in (6, 7):
            with pytest.raises(Overtaken):
                publish(capture, epoch)
        capture.close()
    assert epochs(look(repo)) == [5, 7]


@pytest.mark.parametrize("by", ["carry", "delta"])
def test_what_stands_on_a_checkpoint_that_was_overtaken_is_not_published_on_another(by: str) -> None:
    """Carried partitions and deltas of the old parent would undo what the winner changed."""
    repo = make_repo()
    with start(repo) as run:
        save(run, 0, 2)
        capture = beside(repo, run)
        draft = capture.begin(9, carry=by == "carry")
        draft.save_partition(PartitionState("count", 0, b"mine", is_delta=by == "delta"))
        save(run, 1, 2)
        with pytest.raises(Overtaken):
            capture.publish(draft, Description())
        capture.close()
    assert epochs(look(repo)) == [0, 1]


def test_a_request_that_can_not_be_answered_does_not_undo_the_checkpoint() -> None:
    class Deaf(Around):
        def create(self, key: str, data: Buffer) -> bool:
            if "savepoints/" in key:
                raise StoreUnavailable(self.url, "create", 60.0, "no")
            return super().create(key, data)

    repo = make_repo(Deaf(open_store("memory://")))
    with start(repo) as run:
        ask(look(repo).records, "soon")
        assert save(run, 0).at == Slot(0, 0)
    assert len(waiting_requests(look(repo).records)) == 1


def test_a_request_that_nobody_made_costs_one_listing() -> None:
    store = CountingStore(open_store("memory://"))
    with start(make_repo(store)) as run:
        store.reset()
        run.begin(0)
    assert store.counts == {"list": 1}


WRONG = [
    (-1, Description()),
    (9, Description(vnode_count=1)),
    (9, Description(vnode_count=-1)),
    (9, Description(processed_records=-1)),
    (9, Description(sink_epochs={"nobody": 3})),
]


@pytest.mark.parametrize(("epoch", "about"), WRONG)
def test_what_recovery_would_refuse_is_never_published(epoch: int, about: Description) -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 1)
        draft = run.begin(epoch)
        for partition in range(3):
            run.save_snapshot(draft, "op", partition, b"state")
        with pytest.raises((InvalidManifest, Overtaken)):
            run.save_manifest(draft, about)
        save(run, 10)
    assert [c.epoch for c in look(repo).checkpoints()] == [1, 10]
