from __future__ import annotations

from typing import Any

import pytest

from builders import (
    NAME,
    OneWay,
    Silent,
    Table,
    filled,
    keys,
    look,
    make_repo,
    manifest_key,
    plain_manifest,
    save,
    sinking,
    start,
)
from holdfast.errors import BadValue, Fenced, SinkFailed, Unsettled
from holdfast.handles import Repository
from holdfast.layout import Slot
from holdfast.manifest import Manifest, SinkStatus
from holdfast.settle import LoopSink, Settlement, committed_position, drive, plan_settlement


def pending(**statuses: str) -> Manifest:
    sinks = {name: SinkStatus(status=status, token="rows-7") for name, status in statuses.items()}  # type: ignore[arg-type]
    return plain_manifest(sink_names=sorted(sinks), sink_commit_statuses=sinks, sink_positions={"done": 5})


def test_every_sink_commits_by_its_token_and_then_it_is_recorded() -> None:
    repo, one, two = filled(1), Table(), Table()
    records = look(repo).records
    settled = drive(records, pending(one="pending", two="pending"), {"one": one, "two": two})
    assert (one.commits, two.commits) == (["rows-7"], ["rows-7"])
    assert {name: (o.status, o.position) for name, o in settled.outcomes.items()} == {
        "one": ("committed", 7),
        "two": ("committed", 7),
    }
    assert records.settled(Slot(0, 0)) == settled


def test_what_is_settled_is_not_driven_again() -> None:
    repo, table = filled(1), Table()
    first = drive(look(repo).records, pending(table="pending"), {"table": table})
    assert drive(look(repo).records, pending(table="pending"), {"table": table}) == first
    assert drive(look(repo).records, pending(table="pending"), {}) == first
    assert table.commits == ["rows-7"]


def test_a_sink_that_failed_in_the_manifest_is_driven_again_and_not_skipped() -> None:
    repo, table = filled(1), Table()
    drive(look(repo).records, pending(table="failed"), {"table": table})
    assert table.committed == [7]


def test_a_sink_that_the_manifest_calls_committed_is_left_alone_and_keeps_its_position() -> None:
    repo, table, done = filled(1), Table(), Table()
    settled = drive(look(repo).records, pending(table="pending", done="committed"), {"table": table, "done": done})
    assert done.commits == []
    assert settled.outcomes["done"].position == 5


def test_a_failing_sink_is_reported_with_its_reason_and_the_others_are_tried_all_the_same() -> None:
    repo, bad, good = filled(1), Table(), Table()
    bad.failing = OSError("disk full")
    manifest, sinks = pending(bad="pending", good="pending"), {"bad": bad, "good": good}
    with pytest.raises(SinkFailed, match="OSError: disk full") as failed:
        drive(look(repo).records, manifest, sinks)
    assert (failed.value.sink, failed.value.checkpoint) == ("bad", "0-0")
    assert good.committed == [7]
    assert look(repo).records.settled(Slot(0, 0)) is None
    assert len(keys(repo.store, ".failed.json")) == 1


def test_a_failed_sink_is_driven_again_until_it_commits() -> None:
    repo, bad, good = filled(1), Table(), Table()
    bad.failing = OSError("disk full")
    manifest, sinks = pending(bad="pending", good="pending"), {"bad": bad, "good": good}
    for _ in range(2):
        with pytest.raises(SinkFailed):
            drive(look(repo).records, manifest, sinks)
    bad.failing = None
    settled = drive(look(repo).records, manifest, sinks)
    assert all(outcome.status == "committed" for outcome in settled.outcomes.values())
    assert (bad.committed, good.committed) == ([7], [7])


def test_a_sink_that_stays_down_is_recorded_once_and_again_only_when_something_else_happens() -> None:
    repo, bad, good = filled(1), Table(), Table()
    manifest, sinks = pending(bad="pending", good="pending"), {"bad": bad, "good": good}

    def attempt(times: int) -> int:
        for _ in range(times):
            with pytest.raises(SinkFailed):
                drive(look(repo).records, manifest, sinks)
        return len(keys(repo.store, ".failed.json"))

    bad.failing = good.failing = OSError("disk full")
    assert attempt(3) == 1
    bad.failing = OSError("no route")
    assert attempt(3) == 2
    good.failing = None
    assert attempt(3) == 3
    bad.failing = None
    drive(look(repo).records, manifest, sinks)
    assert look(repo).records.settled(Slot(0, 0)) is not None


def test_a_pending_sink_that_nobody_brought_stops_before_any_commits() -> None:
    repo, table = filled(1), Table()
    with pytest.raises(Unsettled) as refused:
        drive(look(repo).records, pending(table="pending", other="pending"), {"table": table})
    assert refused.value.sinks == ["other"]
    assert table.commits == []


def test_a_fence_in_the_sink_is_no_failure_of_the_sink() -> None:
    repo, table = filled(1), Table()
    table.failing = Fenced(NAME, 0, "the sink knows a higher one")
    with pytest.raises(Fenced):
        drive(look(repo).records, pending(table="pending"), {"table": table})
    assert keys(repo.store, "settled/") == []


def test_a_crash_between_commit_and_record_commits_once() -> None:
    repo, table = filled(1), Table()
    table.commit("rows-7")
    drive(look(repo).records, pending(table="pending"), {"table": table})
    assert table.committed == [7]


def test_a_manifest_is_never_written_again_when_its_sinks_commit() -> None:
    """Writing the outcome into the manifest once lost its checksum: the outcome is a record of its own."""
    repo, table = make_repo(), Table()
    with start(repo, sinks={"table": table}) as run:
        table.failing = OSError("full")
        with pytest.raises(SinkFailed):
            save(run, 3, about=sinking(3, table=table))
        before = repo.store.get(manifest_key(Slot(0, 0)))
        table.failing = None
        run.settle()
    assert repo.store.get(manifest_key(Slot(0, 0))) == before
    assert look(repo).records.settled(Slot(0, 0)) is not None


# ---- what recovery does with sinks that stand elsewhere ----


def plan(repo: Repository, manifest: Manifest | None, sink: Table, *, went_back: bool = False) -> Settlement:
    positions = {"done": sink.position()}
    return plan_settlement(look(repo).records, manifest, {"done": sink}, positions, 1, went_back=went_back)


def standing(sink: Table, *sequences: int) -> Table:
    sink.committed = list(sequences)
    return sink


def test_a_sink_that_stands_where_the_checkpoint_left_it_is_left_alone() -> None:
    assert plan(filled(1), pending(done="committed"), standing(Table(), 5)) == Settlement()


def test_a_sink_that_is_elsewhere_is_rolled_back_if_it_can_and_stuck_if_not() -> None:
    repo, manifest = filled(1), pending(done="committed")
    assert plan(repo, manifest, standing(Table(), 5, 6)) == Settlement(to_roll_back=("done",))
    assert plan(repo, manifest, standing(OneWay(), 5, 6)) == Settlement(stuck=("done",))


def test_a_sink_that_tells_no_position_counts_as_ahead_only_after_a_fall_back() -> None:
    repo, manifest = filled(1), pending(done="committed")
    assert plan(repo, manifest, Silent()) == Settlement()
    assert plan(repo, manifest, Silent(), went_back=True) == Settlement(stuck=("done",))


def test_with_no_checkpoint_at_all_a_sink_that_holds_something_is_never_emptied() -> None:
    assert plan(filled(1), None, standing(Table(), 5)) == Settlement(stuck=("done",))
    assert plan(filled(1), None, Table()) == Settlement()


def test_what_is_still_to_be_driven_is_driven_and_not_rolled_back() -> None:
    assert plan(filled(1), pending(done="pending"), standing(Table(), 6)) == Settlement()


def test_the_position_of_a_settled_checkpoint_is_the_one_its_commit_returned() -> None:
    repo, table = make_repo(), Table()
    with start(repo, sinks={"table": table}) as run:
        manifest = save(run, 3, about=sinking(3, table=table))
    records = look(repo).records
    assert committed_position(records, manifest, "table") == 3
    assert committed_position(records, pending(done="committed"), "done") == 5
    assert committed_position(records, manifest, "unknown") is None


def test_a_sink_without_a_way_back_says_so() -> None:
    class Plain(LoopSink):
        def prepare(self, sequence: int) -> Any:
            return sequence

        def commit(self, token: Any) -> Any:
            return token

    assert not Plain().can_roll_back()
    assert Plain().fence("p", 1, "t") is None
    with pytest.raises(BadValue):
        Plain().roll_back(3)
    assert not Plain().can_jump()
    assert Table().can_roll_back()
    assert not Table().can_jump()
