from __future__ import annotations

import pytest

import holdfast
from builders import NAME, filled, flip, keys, look, make_repo, plain_manifest, save, seed_checkpoints, start
from holdfast.errors import DamagedRecord, MissingRecords, ObjectMissing, OutcomeUnknown, PipelineMissing
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.manifest import encode_manifest
from holdfast.records import Base, Decision, Pin, Savepoint, VoidSlot, seal
from holdfast.recovery import Demands
from holdfast.repository.pipeline import MAYBE_VOID, PipelineRecords
from holdfast.store import ObjectInfo, Store, open_store
from holdfast.store.memory import MemoryStore
from holdfast.testing.faults import Around, CountingStore, LateStore


def of(store: Store) -> PipelineRecords:
    return PipelineRecords(store, NAME, "r")


def void(slot: Slot) -> bytes:
    return seal(VoidSlot(token=new_token(), generation=slot.generation, slot=slot.number))


class Listing(CountingStore):
    """Counts what listings give as well: a long one is many requests."""

    def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        found = super().list(prefix, start_after)
        self.counts["listed"] += len(found)
        return found


def test_latest_takes_the_same_requests_with_ten_checkpoints_and_with_ten_thousand() -> None:
    counts = []
    for checkpoints in (10, 10_000):
        store = Listing(open_store("memory://"))
        repo = make_repo(store)
        seed_checkpoints(repo, checkpoints)
        pipeline = look(repo)
        store.reset()
        newest = pipeline.latest()
        assert newest is not None
        assert newest.slot == Slot(0, checkpoints - 1)
        counts.append(store.counts.copy())
    assert counts[0] == counts[1]
    assert counts[0]["listed"] <= 4
    assert counts[0].total() - counts[0]["listed"] <= 6


def test_latest_after_a_take_over_still_takes_the_same_requests() -> None:
    counts = []
    for checkpoints in (10, 1000):
        store = Listing(open_store("memory://"))
        repo = make_repo(store)
        seed_checkpoints(repo, checkpoints)
        with start(repo):
            pipeline = look(repo)
            store.reset()
            newest = pipeline.latest()
        assert newest is not None
        assert newest.slot == Slot(0, checkpoints - 1)
        counts.append(store.total)
    assert counts[0] == counts[1]


def hinted(slot: Slot | bytes | None) -> Slot | None:
    """What counts as newest when the hint says this; the newest is 0-5."""
    repo = filled(6)
    records = look(repo).records
    if slot is None:
        repo.store.delete([records.keys.latest])
    elif isinstance(slot, bytes):
        repo.store.put(records.keys.latest, slot)
    else:
        records.put_hint(slot)
    return look(repo).records.locate().newest


@pytest.mark.parametrize(
    "hint", [None, b"", b"0-5", b"\xff" * 300, Slot(0, 0), Slot(0, 4), Slot(0, 5), Slot(0, 6), Slot(0, 99), Slot(9, 9)]
)
def test_whatever_the_hint_says_the_newest_is_the_newest(hint: Slot | bytes | None) -> None:
    assert hinted(hint) == Slot(0, 5)


def test_a_stale_writer_that_moves_the_hint_back_hides_nothing() -> None:
    repo = filled(3)
    with start(repo) as run:
        save(run, 3)
        look(repo).records.put_hint(Slot(0, 0))
        assert look(repo).records.locate().newest == Slot(1, 0)


def test_a_hint_to_an_abandoned_checkpoint_does_not_undo_a_rewind() -> None:
    repo = filled(5)
    with start(repo, why="rewind", demands=Demands(to=Slot(0, 1))):
        hint = look(repo).records.hint()
        assert hint is not None
        assert (hint.generation, hint.slot) == (0, 4)
        assert look(repo).records.locate().newest == Slot(0, 1)


def test_a_hint_to_a_pruned_checkpoint_is_not_a_loss() -> None:
    repo = filled(5)
    look(repo).forget(Slot(0, 1))
    look(repo).records.put_hint(Slot(0, 1))
    assert look(repo).records.locate() == (0, Slot(0, 4), None)


def test_a_hint_to_what_is_gone_says_what_was_lost() -> None:
    repo = filled(3)
    repo.store.delete([look(repo).records.keys.manifest(Slot(0, 2))])
    assert look(repo).records.locate() == (0, Slot(0, 1), Slot(0, 2))


def test_a_void_slot_and_a_forgotten_slot_are_passed_over_when_finding_the_newest() -> None:
    repo = filled(3)
    records = look(repo).records
    repo.store.create(records.keys.manifest(Slot(0, 3)), void(Slot(0, 3)))
    repo.store.create(records.keys.manifest(Slot(0, 4)), encode_manifest(plain_manifest(Slot(0, 4))))
    decision = Decision(token=new_token(), generation=0, slot=4, objects=[])
    repo.store.create(records.keys.decision(Slot(0, 4)), seal(decision))
    assert look(repo).records.locate().newest == Slot(0, 2)
    assert look(repo).world().void == {Slot(0, 3)}
    assert look(repo).world().forgotten == {Slot(0, 4)}


def test_every_manifest_is_larger_than_a_void_can_be() -> None:
    assert len(encode_manifest(plain_manifest(pipeline_hash=""))) > MAYBE_VOID
    assert len(void(Slot(10**10 - 1, 10**10 - 1))) < MAYBE_VOID


def test_a_manifest_cut_to_the_size_of_a_void_is_damaged_and_not_void() -> None:
    repo = filled(2)
    key = look(repo).records.keys.manifest(Slot(0, 1))
    repo.store.put(key, repo.store.get(key)[:100])
    assert look(repo).world().void == set()
    with pytest.raises(DamagedRecord):
        look(repo).records.manifest(Slot(0, 1))


def test_a_void_is_no_manifest_and_a_damaged_void_is_damage() -> None:
    repo = filled(1)
    records = look(repo).records
    repo.store.create(records.keys.manifest(Slot(0, 1)), void(Slot(0, 1)))
    with pytest.raises(ObjectMissing):
        records.manifest(Slot(0, 1))
    flip(repo.store, records.keys.manifest(Slot(0, 1)), at=-20)
    with pytest.raises(DamagedRecord):
        look(repo).records.manifest(Slot(0, 1))


def test_a_manifest_at_the_key_of_another_slot_is_damage() -> None:
    repo = filled(2)
    at = look(repo).records.keys
    repo.store.put(at.manifest(Slot(0, 1)), repo.store.get(at.manifest(Slot(0, 0))))
    with pytest.raises(DamagedRecord, match="manifest of 0-0"):
        look(repo).records.manifest(Slot(0, 1))


def test_records_without_an_identity_are_damage_and_not_a_new_pipeline() -> None:
    repo = filled(1)
    repo.store.delete([look(repo).records.keys.identity])
    for ask in (look(repo).exists, look(repo).records.identity, look(repo).records.ensure_identity):
        with pytest.raises(MissingRecords):
            ask()


def test_a_pipeline_that_never_was_is_missing_and_gets_one_identity() -> None:
    repo = make_repo()
    assert not look(repo).exists()
    with pytest.raises(PipelineMissing):
        look(repo).records.identity()
    first = look(repo).records.ensure_identity()
    assert look(repo).records.ensure_identity() == first


def test_only_names_of_our_own_making_are_ever_deleted() -> None:
    repo = filled(1)
    records = look(repo).records
    repo.store.put(f"{records.keys.prefix}README.txt", b"mine")
    for key in (
        f"{records.keys.prefix}README.txt",
        "holdfast.json",
        "pipelines/other/latest",
        f"{records.keys.prefix}data/",
    ):
        with pytest.raises(DamagedRecord):
            records.drop(records.keys.latest, key)
    assert keys(repo.store, "latest")


def test_what_was_dropped_is_not_remembered() -> None:
    repo = filled(3)
    records = look(repo).records
    records.manifest(Slot(0, 0))
    records.head(Slot(0, 0))
    records.drop(records.keys.manifest(Slot(0, 0)))
    with pytest.raises(ObjectMissing):
        records.manifest(Slot(0, 0))
    with pytest.raises(ObjectMissing):
        records.head(Slot(0, 0))


def test_what_was_read_once_is_not_asked_for_again() -> None:
    store = CountingStore(open_store("memory://"))
    repo = filled(2, store)
    records = look(repo).records
    for _ in range(2):
        store.reset()
        records.head(Slot(0, 0))
        records.manifest(Slot(0, 1))
        records.identity()
    assert store.total == 0


def test_a_head_costs_one_small_read() -> None:
    store = CountingStore(open_store("memory://"))
    repo = filled(1, store)
    store.reset()
    assert look(repo).records.head(Slot(0, 0)).epoch == 0
    assert store.counts == {"get_ranges": 1}


def pin(records: PipelineRecords, slot: Slot, claim: int | None) -> None:
    made = Pin(
        token=new_token(), generation=slot.generation, slot=slot.number, why="w", who="me", created_ms=0, claim=claim
    )
    records.create(records.keys.pin(slot, made.token), made)


def test_a_pin_of_a_claim_counts_only_until_that_claim_has_a_base_or_is_void(memory_store: Store) -> None:
    records = of(memory_store)
    for claim in (None, 4, 5, 6):
        pin(records, Slot(0, claim or 0), claim)
    records.create(records.keys.base(4), Base(token=new_token(), generation=4))
    records.create(records.keys.base(5), Base(token=new_token(), generation=5, void=True))
    assert [p.claim for p in records.pins()] == [None, 6]


def word(name: str, k: int, **more: object) -> Savepoint:
    return Savepoint(token=new_token(), name=name, generation=0, slot=k, checkpoint_id="c", created_ms=0, **more)  # type: ignore[arg-type]


def test_the_highest_word_on_a_name_counts(memory_store: Store) -> None:
    records = of(memory_store)
    for name, said in {
        "kept": [word("kept", 0), word("kept", 1)],
        "removed": [word("removed", 0), word("removed", 1, removed=True)],
        "again": [word("again", 0), word("again", 1, removed=True), word("again", 2)],
        "doubtful": [word("doubtful", 0), word("doubtful", 1, void=True)],
        "never": [word("never", 0, void=True)],
    }.items():
        for k, record in enumerate(said):
            records.create(records.keys.savepoint(name, k), record)
    assert {name: savepoint.slot for name, savepoint in records.savepoints().items()} == {
        "kept": 1,
        "again": 2,
        "doubtful": 0,
    }


def test_a_create_whose_reply_is_lost_is_given_up_by_a_void_at_that_very_key() -> None:
    inner = open_store("memory://")
    lost: list[str] = []

    def first_time(key: str) -> bool:
        lost.append(key)
        return len(lost) == 1

    late = LateStore(inner, first_time)
    records = of(late)
    record, nothing = Base(token="mine", generation=1), Base(token="nothing", generation=1, void=True)
    assert not records.create_or_void(records.keys.base(1), record, nothing)
    assert late.land() == []
    assert of(inner).generations().bases[1] == nothing


def test_a_create_that_landed_after_all_counts_as_ours() -> None:
    inner = open_store("memory://")

    class ReplyLost(LateStore):
        def create(self, key: str, data: bytes) -> bool:  # type: ignore[override]
            if self.inner.create(key, data) and b"mine" in data:
                raise OutcomeUnknown(self.url, key, "the reply was lost")
            return False

    records = of(ReplyLost(inner, lambda _: False))
    record, nothing = Base(token="mine", generation=1), Base(token="nothing", generation=1, void=True)
    assert records.create_or_void(records.keys.base(1), record, nothing)
    assert of(inner).generations().bases[1] == record


def test_foreign_objects_are_neither_listed_nor_in_the_way() -> None:
    repo = filled(2)
    at = look(repo).records.keys
    for foreign in (
        "generations/7.json",
        "checkpoints/0000000000/9.json",
        "checkpoints/notes.txt",
        "forgotten/x",
        "pins/y",
    ):
        repo.store.put(at.prefix + foreign, b"foreign")
    assert look(repo).records.locate().newest == Slot(0, 1)
    assert len(look(repo).checkpoints()) == 2
    with start(repo) as run:
        assert run.generation == 1


def test_a_pipeline_that_is_made_while_it_is_looked_for_is_no_damage() -> None:
    class MadeMeanwhile(Around):
        """Somebody makes the pipeline between the look for its identity and the listing."""

        def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
            holdfast.open(self.inner).pipeline("p").records.ensure_identity()
            return self.inner.list(prefix, start_after)

    inner = MemoryStore()
    holdfast.open(inner, create=True)
    records = holdfast.open(MadeMeanwhile(inner)).pipeline("p").records
    assert records.identity() == holdfast.open(inner).pipeline("p").records.identity()
