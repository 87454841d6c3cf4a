from __future__ import annotations

import pytest

from builders import (
    NAME,
    OneWay,
    Silent,
    Table,
    Versioned,
    damage_state,
    data_key,
    dump,
    epochs,
    filled,
    flip,
    keys,
    look,
    make_repo,
    manifest_key,
    save,
    sinking,
    start,
    state,
    truncate,
)
from holdfast.checkpointer import Checkpointer
from holdfast.decide.fingerprint import Fingerprint
from holdfast.decide.retention import KeepPolicy
from holdfast.draft import Description, PartitionState
from holdfast.errors import (
    BeingForgotten,
    CheckpointMissing,
    Damage,
    DamagedArtifact,
    Fenced,
    FingerprintMismatch,
    MissingRecords,
    NothingRestorable,
    RepositoryMissing,
    SinkFailed,
    SinksAhead,
    Unsettled,
)
from holdfast.gc import plan_prune
from holdfast.handles import Repository, open_url
from holdfast.ids import new_token
from holdfast.layout import REPOSITORY, Slot
from holdfast.manifest import Manifest, SinkStatus
from holdfast.records import Decision, Intent
from holdfast.recovery import Demands, Skipped, choose
from holdfast.store import Store, open_store
from holdfast.testing.faults import CountingStore
from loop_sinks import RollingTableSink
from loop_sinks import Table as SharedTable


def began(run: Checkpointer) -> Slot | None:
    return run.recovered.manifest.at if run.recovered.manifest else None


def manifests(repo: Repository) -> list[Manifest]:
    return [checkpoint.manifest for checkpoint in look(repo).checkpoints()]


def skipped(run: Checkpointer) -> list[Slot]:
    return [slot for slot, _ in run.recovered.skipped]


# ---- the newest whole checkpoint ----


def test_a_new_pipeline_begins_at_nothing() -> None:
    with start(make_repo()) as run:
        assert (began(run), run.generation, run.tip) == (None, 0, None)
    with start(repo := make_repo()), start(repo) as run:
        assert (began(run), run.generation) == (None, 1)


def test_recovery_begins_at_the_newest_checkpoint_and_goes_on_from_it() -> None:
    repo = filled(3)
    with start(repo) as run:
        assert began(run) == Slot(0, 2)
        assert run.recovered.skipped == ()
        assert run.tip is not None
        assert run.load_partition(run.tip, "count", 0) == [state(2)]
        save(run, 3)
    assert epochs(look(repo)) == [0, 1, 2, 3]


@pytest.mark.parametrize("harm", [flip, truncate, lambda store, key: store.delete([key])])
def test_a_damaged_manifest_is_reported_and_fallen_back_over(harm: object) -> None:
    repo = filled(3)
    harm(repo.store, manifest_key(Slot(0, 2)))  # type: ignore[operator]
    with start(repo) as run:
        assert began(run) == Slot(0, 1)
        assert skipped(run) == [Slot(0, 2)]
        assert run.recovered.skipped[0].why


@pytest.mark.parametrize(
    "harm", [damage_state, lambda s, m: s.delete([data_key(m)]), lambda s, m: truncate(s, data_key(m), 150)]
)
def test_a_damaged_byte_of_state_is_found_reported_and_fallen_back_over(harm: object) -> None:
    """Loaded artifacts are always verified, every byte, before a checkpoint is begun from."""
    repo = filled(3)
    harm(repo.store, manifests(repo)[2])  # type: ignore[operator]
    with start(repo) as run:
        assert began(run) == Slot(0, 1)
        assert skipped(run) == [Slot(0, 2)]


def test_several_damaged_checkpoints_are_all_reported_newest_first() -> None:
    repo = filled(4)
    flip(repo.store, manifest_key(Slot(0, 3)))
    damage_state(repo.store, manifests_of(repo, 2))
    with start(repo) as run:
        assert began(run) == Slot(0, 1)
        assert skipped(run) == [Slot(0, 3), Slot(0, 2)]
    assert epochs_readable(repo) == [0, 1]


def manifests_of(repo: Repository, number: int) -> Manifest:
    return look(repo).records.manifest(Slot(0, number))


def epochs_readable(repo: Repository) -> list[int]:
    return [checkpoint.epoch for checkpoint in look(repo).checkpoints()]


def test_damage_in_shared_bytes_hits_every_checkpoint_that_shares_them() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0, {0: state(0)})
        save(run, 1, {0: state(1)})
        last = save(run, 2, {0: state(1), 1: state(2)})
    damage_state(repo.store, last, partition=0)
    with start(repo) as run:
        assert began(run) == Slot(0, 0)
        assert skipped(run) == [Slot(0, 2), Slot(0, 1)]


def test_the_number_of_fall_backs_can_be_bounded_and_past_it_nothing_is_claimed() -> None:
    repo = filled(4)
    for number in (2, 3):
        flip(repo.store, manifest_key(Slot(0, number)))
    before = dump(repo.store)
    for bound in (0, 1):
        with pytest.raises(NothingRestorable) as none:
            start(repo, demands=Demands(max_fallback=bound))
        assert len(none.value.tried) == bound + 1
    assert dump(repo.store) == before
    with start(repo, demands=Demands(max_fallback=2)) as run:
        assert began(run) == Slot(0, 1)


def test_all_checkpoints_corrupt_is_an_error_and_never_a_fresh_start() -> None:
    repo = filled(3)
    for number in range(3):
        flip(repo.store, manifest_key(Slot(0, number)))
    before = dump(repo.store)
    with pytest.raises(NothingRestorable) as none:
        start(repo)
    assert [tried.split(":")[0] for tried in none.value.tried] == ["0-2", "0-1", "0-0"]
    assert dump(repo.store) == before


def test_the_wrong_number_of_partitions_is_not_begun_from() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0, 4)
        save(run, 1, 8)
    with start(repo, demands=Demands(expected_vnode_count=4)) as run:
        assert began(run) == Slot(0, 0)
        assert "8 operator partitions where 4" in run.recovered.skipped[0].why


def test_a_checkpoint_that_fell_behind_a_recovery_stays_behind() -> None:
    """The damaged one is off the timeline once a generation began before it, even if its bytes come back."""
    repo = filled(3)
    original = repo.store.get(manifest_key(Slot(0, 2)))
    flip(repo.store, manifest_key(Slot(0, 2)))
    with start(repo):
        pass
    repo.store.put(manifest_key(Slot(0, 2)), original)
    with start(repo) as run:
        assert began(run) == Slot(0, 1)


def test_verification_reads_every_byte_once_and_not_again_after_the_claim() -> None:
    store = CountingStore(open_store("memory://"))
    repo = filled(1, store)
    store.reset()
    with start(repo):
        pass
    assert store.counts["get_ranges"] == 1


# ---- what is missing is never a fresh start ----


def test_a_missing_hint_costs_nothing_but_requests() -> None:
    repo = filled(3)
    repo.store.delete(keys(repo.store, "latest"))
    with start(repo) as run:
        assert (began(run), run.recovered.skipped) == (Slot(0, 2), ())


@pytest.mark.parametrize("there", [b"", b"garbage", b'{"generation":0,"slot":0}\n'])
def test_a_corrupt_hint_costs_nothing_but_requests(there: bytes) -> None:
    repo = filled(3)
    repo.store.put(keys(repo.store, "latest")[0], there)
    with start(repo) as run:
        assert (began(run), run.recovered.skipped) == (Slot(0, 2), ())


def test_a_hint_that_was_moved_back_costs_nothing_but_requests() -> None:
    repo = filled(3)
    look(repo).records.put_hint(Slot(0, 0))
    with start(repo) as run:
        assert (began(run), run.recovered.skipped) == (Slot(0, 2), ())


def test_a_hint_beyond_what_is_there_says_that_something_was_lost() -> None:
    repo = filled(3)
    look(repo).records.put_hint(Slot(0, 5))
    with start(repo) as run:
        assert began(run) == Slot(0, 2)
        assert run.recovered.skipped == (Skipped(Slot(0, 5), "its manifest is gone, though the hint names it"),)
    look(repo).records.put_hint(Slot(9, 5))
    with pytest.raises(NothingRestorable):
        start(repo, demands=Demands(max_fallback=0))


def missing(*parts: str) -> Repository:
    """A pipeline with checkpoints of two generations, a savepoint and a forgotten one, without these records."""
    repo = filled(4)
    with start(repo) as run:
        save(run, 4)
    look(repo)["epoch:1"].savepoint("kept")
    look(repo).forget(Slot(0, 2))
    repo.store.delete([key for key in keys(repo.store) if any(part in key for part in parts)])
    return repo


@pytest.mark.parametrize(
    "parts",
    [
        ("checkpoints/",),
        ("checkpoints/", "latest"),
        ("generations/",),
        ("generations/", "latest"),
        (".base.json",),
        (".base.json", "latest"),
        ("generations/", "checkpoints/"),
        ("generations/", "checkpoints/", "latest"),
        ("pipeline.json",),
        ("pipeline.json", "generations/", "checkpoints/", "latest"),
        ("0000000001.base.json",),
        ("0000000001.base.json", "latest"),
        ("0000000001.base.json", "generations/0000000001.json", "latest"),
    ],
    ids=" ".join,
)
def test_missing_records_are_an_error_and_nothing_is_touched(parts: tuple[str, ...]) -> None:
    repo = missing(*parts)
    before = dump(repo.store)
    with pytest.raises(Damage):
        start(repo)
    assert dump(repo.store) == before


def test_a_lost_base_is_found_out_before_the_checkpoints_after_it_are_left_out_in_silence() -> None:
    repo = missing("0000000001.base.json")
    with pytest.raises(MissingRecords, match="generation 1 has checkpoints"):
        start(repo)
    assert any("base of generation 1" in fault.what for fault in look(repo).check().damaged)


class Unwilling(Table):
    def fence(self, pipeline_id: str, generation: int, token: str) -> None:
        raise RuntimeError("not today")


def test_a_claim_that_never_began_is_no_loss() -> None:
    repo = filled(2)
    with pytest.raises(RuntimeError):
        start(repo, sinks={"bad": Unwilling()})
    assert [g.began for g in look(repo).generations()] == ["fresh", "not yet"]
    with start(repo) as run:
        assert (began(run), run.generation) == (Slot(0, 1), 2)


def test_the_loss_of_an_older_generation_does_not_stop_the_newest_and_check_reports_it() -> None:
    repo = missing("generations/0000000000")
    assert any("generation 0" in fault.what for fault in look(repo).check().damaged)
    with start(repo) as run:
        assert began(run) == Slot(1, 0)


def test_a_missing_root_record_is_an_error_and_never_an_empty_repository() -> None:
    repo = filled(2)
    repo.store.delete([REPOSITORY])
    for create in (False, True):
        with pytest.raises(MissingRecords):
            open_url(repo.store, create=create)


def test_an_empty_place_is_no_repository(memory_store: Store) -> None:
    with pytest.raises(RepositoryMissing):
        open_url(memory_store)


def test_a_first_run_that_died_before_its_first_checkpoint_may_start_afresh() -> None:
    repo = make_repo()
    with start(repo) as run:
        draft = run.begin(0)
        run.save_snapshot(draft, "count", 0, state(0))
    with start(repo) as run:
        assert began(run) is None


def test_what_a_stale_writer_left_off_the_timeline_does_not_stop_a_fresh_pipeline() -> None:
    repo = make_repo()
    with start(repo) as old, start(repo) as new:
        with pytest.raises(Fenced):
            save(old, 0)
        save(new, 0)
        with start(repo) as run:
            assert began(run) == Slot(1, 0)


# ---- the fingerprint ----


def hashed(**parts: str) -> Description:
    mine = Fingerprint(parts)
    return Description(pipeline_hash=mine.digest, fingerprint=mine.parts)


def test_another_pipeline_than_the_one_that_saved_is_refused_and_shown_what_differs() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0, about=hashed(source="kafka", window="10 s"))
    before = dump(repo.store)
    with pytest.raises(FingerprintMismatch) as refused:
        start(repo, demands=Demands(fingerprint=Fingerprint({"source": "kafka", "window": "30 s"})))
    assert len(refused.value.differences) == 1
    assert "window" in refused.value.differences[0]
    assert dump(repo.store) == before


def test_a_change_that_is_meant_is_let_through() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0, about=hashed(window="10 s"))
    changed = Fingerprint({"window": "30 s"})
    with start(repo, demands=Demands(fingerprint=changed, allow_changed=True)) as run:
        assert began(run) == Slot(0, 0)


def test_the_same_pipeline_and_one_that_never_said_what_it_is_go_on() -> None:
    repo = make_repo()
    mine = Fingerprint({"window": "10 s"})
    with start(repo) as run:
        save(run, 0)
    with start(repo, demands=Demands(fingerprint=mine)) as run:
        save(run, 1, about=hashed(window="10 s"))
    with start(repo, demands=Demands(fingerprint=mine)) as run:
        assert began(run) == Slot(1, 0)


# ---- sinks ----


def stopped_before_commit(*sinks: Table) -> Repository:
    """Epochs 0 and 1 are committed; epoch 2 was decided, and the process died before any sink heard of it."""
    repo = make_repo()
    named = {f"sink-{n}": sink for n, sink in enumerate(sinks)}
    with start(repo, sinks=named) as run:
        for epoch in (0, 1):
            save(run, epoch, about=sinking(epoch, **named))
        draft = run.begin(2)
        draft.save_partition(PartitionState("count", 0, state(2)))
        run._publisher.publish(draft, sinking(2, **named))
    for sink in sinks:
        assert sink.committed == [0, 1]
        sink.events.clear()
    return repo


def test_pending_sinks_are_driven_before_anything_else_runs() -> None:
    table, other = Table(), Table()
    repo = stopped_before_commit(table, other)
    with start(repo, sinks={"sink-0": table, "sink-1": other}) as run:
        assert began(run) == Slot(0, 2)
        assert (table.committed, other.committed) == ([0, 1, 2], [0, 1, 2])
        assert table.events == ["fence 1", "commit rows-2"]
        assert look(repo).records.settled(Slot(0, 2)) is not None
        save(run, 3, about=sinking(3, **{"sink-0": table, "sink-1": other}))
    assert table.committed == [0, 1, 2, 3]


def test_one_sink_committed_and_one_not_ends_with_both_once() -> None:
    table, other = Table(), Table()
    repo = stopped_before_commit(table, other)
    table.commit("rows-2")
    with start(repo, sinks={"sink-0": table, "sink-1": other}):
        pass
    assert (table.committed, other.committed) == ([0, 1, 2], [0, 1, 2])


def test_a_sink_that_failed_is_driven_again_on_recovery() -> None:
    table = Table()
    repo = stopped_before_commit(table)
    table.failing = OSError("full")
    for _ in range(2):
        with pytest.raises(SinkFailed):
            start(repo, sinks={"sink-0": table})
    table.failing = None
    with start(repo, sinks={"sink-0": table}) as run:
        assert began(run) == Slot(0, 2)
    assert table.committed == [0, 1, 2]


def test_pending_sinks_without_a_callback_are_refused_before_anything_is_claimed() -> None:
    table = Table()
    repo = stopped_before_commit(table)
    before = dump(repo.store)
    with pytest.raises(Unsettled) as refused:
        start(repo)
    assert refused.value.sinks == ["sink-0"]
    assert dump(repo.store) == before


def run_to(sink: Table, last: int) -> Repository:
    repo = make_repo()
    with start(repo, sinks={"table": sink}) as run:
        for epoch in range(last + 1):
            save(run, epoch, about=sinking(epoch, table=sink))
    sink.events.clear()
    return repo


def test_falling_back_takes_the_sink_back_with_the_state() -> None:
    table = Table()
    repo = run_to(table, 3)
    damage_state(repo.store, manifests(repo)[3])
    with start(repo, sinks={"table": table}) as run:
        assert began(run) == Slot(0, 2)
        assert run.recovered.rolled_back == ("table",)
        assert table.committed == [0, 1, 2]
        assert table.events == ["fence 1", "back to 2"]


@pytest.mark.parametrize("kind", [OneWay, Silent])
def test_falling_back_under_a_sink_that_can_not_is_refused_unless_duplicates_are_accepted(
    kind: type[Table],
) -> None:
    table = kind()
    repo = run_to(table, 3)
    damage_state(repo.store, manifests(repo)[3])
    with pytest.raises(SinksAhead) as refused:
        start(repo, sinks={"table": table})
    assert (refused.value.checkpoint, refused.value.sinks) == ("0-2", ("table",))
    assert epochs(look(repo))[-1] == 3
    with start(repo, sinks={"table": table}, demands=Demands(accept_duplicates=True)) as run:
        assert began(run) == Slot(0, 2)
    assert table.committed == [0, 1, 2, 3]


def test_a_sink_ahead_of_an_empty_repository_is_never_emptied() -> None:
    table = Table()
    table.committed = [0, 1]
    with pytest.raises(SinksAhead):
        start(make_repo(), sinks={"table": table})
    assert table.committed == [0, 1]


def test_what_the_old_run_did_until_it_was_fenced_is_seen_and_not_lost() -> None:
    """Positions and checkpoints are read after the fence: one more epoch may be decided and committed before it."""

    class LastWord(Table):
        """The old run gets one more epoch through, right before the fence of the new one takes hold."""

        def fence(self, pipeline_id: str, generation: int, token: str) -> object:
            if generation == 1:
                with pytest.raises(Fenced):
                    save(old, 2, about=sinking(2, table=self))
                self.commit("rows-2")
            return super().fence(pipeline_id, generation, token)

    table, repo = LastWord(), make_repo()
    with start(repo, sinks={"table": table}) as old:
        for epoch in (0, 1):
            save(old, epoch, about=sinking(epoch, table=table))
        with start(repo, sinks={"table": table}) as run:
            assert began(run) == Slot(0, 2)
            assert table.committed == [0, 1, 2]
            save(run, 3, about=sinking(3, table=table))
    assert table.committed == [0, 1, 2, 3]
    assert epochs(look(repo)) == [0, 1, 2, 3]


# ---- rewind ----


def test_a_rewind_begins_at_the_checkpoint_asked_for_and_takes_the_sinks_along() -> None:
    table = Table()
    repo = run_to(table, 4)
    with start(repo, why="rewind", demands=Demands(to=Slot(0, 1)), sinks={"table": table}) as run:
        assert began(run) == Slot(0, 1)
        assert table.committed == [0, 1]
        save(run, 2, about=sinking(2, table=table))
    assert table.committed == [0, 1, 2]
    assert epochs(look(repo)) == [0, 1, 2]
    assert [c.epoch for c in look(repo).checkpoints(with_abandoned=True) if not c.counts] == [2, 3, 4]


def test_a_crash_after_a_rewind_and_before_the_first_new_checkpoint_stays_rewound() -> None:
    table = Table()
    repo = run_to(table, 4)
    with start(repo, demands=Demands(to=Slot(0, 1)), sinks={"table": table}):
        pass
    with start(repo, sinks={"table": table}) as run:
        assert began(run) == Slot(0, 1)
    assert table.committed == [0, 1]


def test_a_rewind_sideways_to_the_timeline_that_was_left() -> None:
    repo = filled(5)
    with start(repo, demands=Demands(to=Slot(0, 1))) as run:
        save(run, 20)
    with start(repo, demands=Demands(to=Slot(0, 4))) as run:
        save(run, 5)
    assert epochs(look(repo)) == [0, 1, 2, 3, 4, 5]
    assert [c.slot for c in look(repo).checkpoints(with_abandoned=True) if not c.counts] == [Slot(1, 0)]


def go_on(run: Checkpointer, table: Table, *sequences: int) -> None:
    for sequence in sequences:
        save(run, sequence, about=sinking(sequence, table=table))


def rewound(table: Table, *after: int) -> Repository:
    """Epochs 0 to 4, then back to 1, and from there on along another way."""
    repo = run_to(table, 4)
    with start(repo, demands=Demands(to=Slot(0, 1)), sinks={"table": table}) as run:
        go_on(run, table, *after)
    return repo


@pytest.mark.parametrize("after", [(20, 21), (2, 3, 4), ()], ids=["elsewhere", "same positions", "nothing yet"])
@pytest.mark.parametrize("kind", [Table, OneWay, Silent])
def test_a_rewind_sideways_is_refused_where_a_sink_would_end_without_the_rows_it_took_back(
    kind: type[Table], after: tuple[int, ...]
) -> None:
    """A position that looks the same proves nothing: the rows below it are those of another timeline."""
    table, seen = Table(), kind()
    repo = rewound(table, *after)
    seen.committed = list(table.committed)
    before = epochs(look(repo))
    with pytest.raises(SinksAhead) as refused:
        start(repo, demands=Demands(to=Slot(0, 4)), sinks={"table": seen})
    assert (refused.value.checkpoint, refused.value.sinks) == ("0-4", ("table",))
    assert (epochs(look(repo)), seen.committed) == (before, table.committed)
    with start(repo, sinks={"table": table}) as run:
        go_on(run, table, 30)
    assert table.committed == [0, 1, *after, 30]


def test_a_sink_that_can_jump_follows_a_rewind_sideways_and_back() -> None:
    table = Versioned()
    repo = rewound(table, 20, 21)
    with start(repo, demands=Demands(to=Slot(0, 4)), sinks={"table": table}) as run:
        assert run.recovered.rolled_back == ("table",)
        assert table.committed == [0, 1, 2, 3, 4]
        go_on(run, table, 25)
    with start(repo, demands=Demands(to=Slot(1, 1)), sinks={"table": table}) as run:
        assert table.committed == [0, 1, 20, 21]
        go_on(run, table, 22)
    assert table.committed == [0, 1, 20, 21, 22]


def test_once_a_run_has_published_its_sinks_are_on_its_timeline_and_need_not_jump(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Versioned()
    repo = rewound(table, 20, 21)
    with start(repo, demands=Demands(to=Slot(0, 4)), sinks={"table": table}) as run:
        go_on(run, table, 25)
    monkeypatch.setattr(table, "can_jump", lambda: False)
    with start(repo, demands=Demands(to=Slot(0, 3)), sinks={"table": table}):
        assert table.committed == [0, 1, 2, 3]
    look(repo).forget(Slot(2, 0))
    with start(repo, sinks={"table": table}) as run:
        assert began(run) == Slot(0, 3)
        go_on(run, table, 30)
    assert table.committed == [0, 1, 2, 3, 30]


def test_a_crash_in_a_rewind_sideways_jumps_again_on_the_next_start() -> None:
    table = Versioned()
    repo = rewound(table, 20, 21)
    table.failing = OSError("killed here")
    with pytest.raises(OSError, match="killed here"):
        start(repo, demands=Demands(to=Slot(0, 4)), sinks={"table": table})
    assert table.committed == [0, 1, 20, 21]
    table.failing = None
    with start(repo, sinks={"table": table}) as run:
        assert began(run) == Slot(0, 4)
        go_on(run, table, 25)
    assert table.committed == [0, 1, 2, 3, 4, 25]


def test_an_accepted_rewind_sideways_never_takes_rows_back_on_the_next_start() -> None:
    """Its generation has published nothing, so the sink still stands on the timeline before it."""
    table = Table()
    repo = rewound(table, 20, 21)
    accepting = Demands(to=Slot(0, 4), accept_duplicates=True)
    with start(repo, demands=accepting, sinks={"table": table}) as run:
        assert run.recovered.rolled_back == ()
    with pytest.raises(SinksAhead):
        start(repo, sinks={"table": table})
    assert table.committed == [0, 1, 20, 21]
    with start(repo, demands=Demands(accept_duplicates=True), sinks={"table": table}) as run:
        go_on(run, table, 25)
    with start(repo, sinks={"table": table}) as run:
        assert run.recovered.rolled_back == ()
    assert table.committed == [0, 1, 20, 21, 25]


def test_a_restart_after_a_rewound_run_that_was_pruned_goes_on_as_ever() -> None:
    table = Table()
    repo = rewound(table, 20, 21)
    plan_prune(look(repo).records, KeepPolicy(last=1)).apply()
    for _ in range(2):
        with start(repo, sinks={"table": table}) as run:
            assert (began(run), run.recovered.rolled_back) == (Slot(1, 1), ())
    assert table.committed == [0, 1, 20, 21]


@pytest.mark.parametrize("kind", [Table, Versioned])
def test_a_rewind_sideways_to_what_was_never_settled_is_refused(kind: type[Table]) -> None:
    table = kind()
    repo = run_to(table, 2)
    with start(repo, sinks={"table": table}) as run:
        table.failing = OSError("down")
        with pytest.raises(SinkFailed):
            go_on(run, table, 3)
    table.failing = None
    with start(repo, demands=Demands(to=Slot(0, 0)), sinks={"table": table}) as run:
        go_on(run, table, 10, 11)
    with pytest.raises(SinksAhead):
        start(repo, demands=Demands(to=Slot(1, 0)), sinks={"table": table})
    assert table.committed == [0, 10, 11]
    with start(repo, sinks={"table": table}) as run:
        assert began(run) == Slot(2, 1)
    assert table.committed == [0, 10, 11]


def test_an_activation_claims_on_past_a_primary_that_holds_the_sink_with_the_same_generation() -> None:
    table, primary, standby = SharedTable(), make_repo(), make_repo()

    def write(run: Checkpointer, sink: RollingTableSink, sequence: int) -> None:
        sink.write(sequence)
        prepared = SinkStatus(status="pending", token=sink.prepare(sequence))
        save(run, sequence, about=Description(sinks={"table": prepared}))

    first, restarted, activated = (RollingTableSink(table) for _ in range(3))
    with start(primary, sinks={"table": first}) as run:
        write(run, first, 0)
    primary.copy_to(standby, NAME)
    with start(primary, sinks={"table": restarted}) as old:
        write(old, restarted, 1)
        prepared = restarted.prepare(1)
        with start(standby, activate=True, sinks={"table": activated}) as new:
            assert (old.generation, new.generation) == (1, 2)
            assert (began(new), table.rows) == (Slot(0, 0), [0])
            with pytest.raises(Fenced):
                restarted.commit(prepared)
            with pytest.raises(Fenced):
                write(old, restarted, 2)
            write(new, activated, 1)
    assert table.rows == [0, 1]


def test_a_rewind_to_what_is_not_there_is_refused_before_anything_is_claimed() -> None:
    repo = filled(3)
    look(repo).forget(Slot(0, 0))
    before = dump(repo.store)
    for slot in (Slot(0, 9), Slot(7, 0)):
        with pytest.raises(CheckpointMissing):
            start(repo, demands=Demands(to=slot))
    with pytest.raises((CheckpointMissing, BeingForgotten)):
        start(repo, demands=Demands(to=Slot(0, 0)))
    assert dump(repo.store) == before


def test_a_rewind_to_a_damaged_checkpoint_is_refused_and_does_not_fall_back() -> None:
    repo = filled(3)
    damage_state(repo.store, manifests(repo)[1])
    before = dump(repo.store)
    with pytest.raises(DamagedArtifact):
        start(repo, demands=Demands(to=Slot(0, 1)))
    assert dump(repo.store) == before


def test_a_rewind_beats_a_prune_that_has_not_decided_and_gives_way_to_one_that_has() -> None:
    repo = filled(5)
    records, token = look(repo).records, new_token()
    records.create(records.keys.intent(Slot(0, 1), token), Intent(token=token, generation=0, slot=1))
    decision = Decision(token=token, generation=0, slot=2, objects=[])
    records.create(records.keys.decision(Slot(0, 2)), decision)
    with pytest.raises(BeingForgotten):
        start(repo, demands=Demands(to=Slot(0, 2)))
    with start(repo, demands=Demands(to=Slot(0, 1))) as run:
        assert began(run) == Slot(0, 1)
    assert epochs(look(repo)) == [0, 1]


def test_the_base_of_a_rewind_outlives_the_prune_that_follows_it() -> None:
    repo = filled(6)
    with start(repo, demands=Demands(to=Slot(0, 1))) as run:
        for epoch in range(2, 6):
            save(run, epoch)
    plan_prune(look(repo).records, KeepPolicy(last=1)).apply()
    assert [c.slot for c in look(repo).checkpoints()] == [Slot(0, 1), Slot(1, 2), Slot(1, 3)]
    with start(repo) as run:
        assert (began(run), run.recovered.skipped) == (Slot(1, 3), ())


# ---- looking only ----


def test_choosing_reads_and_changes_nothing() -> None:
    repo = filled(3)
    damage_state(repo.store, manifests(repo)[2])
    before = dump(repo.store)
    choice = choose(look(repo).records, Demands())
    assert choice.manifest is not None
    assert (choice.manifest.at, [s for s, _ in choice.skipped]) == (Slot(0, 1), [Slot(0, 2)])
    assert dump(repo.store) == before


def test_the_claim_says_why_and_the_generations_tell_the_story() -> None:
    repo = filled(2)
    with start(repo, why="rewind", demands=Demands(to=Slot(0, 0))):
        pass
    told = [(g.number, g.claim.why, g.began) for g in look(repo).generations()]
    assert told == [(0, "start", "fresh"), (1, "rewind", "at 0-0")]
    assert look(repo).records.name == NAME
