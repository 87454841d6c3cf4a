"""The epochs of one generation; `test_walk.py` has what they do when they are killed, paused and overtaken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from holdfast.epochs import NOTHING, EpochDecision, Holder, Link, Staged, Step, Target
from holdfast.errors import NotDeterministic, SinkUnavailable
from holdfast.pipeline.epoch import Batch, Epochs, Held, Staging
from holdfast.pipeline.ledger import Ledger
from holdfast.sinks.staged import StagedRows
from holdfast.store import Address
from holdfast.store.memory import MemoryStore
from pipeline.model import Killed, ModelSink, Written, rows_of


@dataclass
class Numbered(Batch):
    """A batch without rows."""

    before: Link
    after: Link
    offsets: bytes = b"v1"
    sources: Mapping[str, bytes] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    has_state: bool = True

    def stage(self, folder: str) -> StagedRows:
        return StagedRows(Staged(folder, [], ""), Address("memory://staged"))


class NoStaging(Staging):
    def open(self, staged: Staged) -> StagedRows | None:
        raise AssertionError(staged)

    def remove(self, staged: Staged) -> None:
        pass


def test_a_driver_that_runs_for_months_keeps_no_decision_that_is_past() -> None:
    noted: list[EpochDecision] = []
    epochs = Epochs("p", Holder("id", 0, "t"), {}, [], NoStaging(), {}, look=None, note=noted.append)
    for epoch in range(100):
        decided = epochs.run(Numbered(Link(epoch - 1, "x"), Link(epoch, "x")))
        assert decided is noted[-1]
    assert [*epochs._decided] == [99]


# ---- several sinks ----


@dataclass
class Kept(Staging):
    """Rows staged in memory, by their folders."""

    folders: set[str] = field(default_factory=set)
    fails: bool = False

    def open(self, staged: Staged) -> StagedRows | None:
        return StagedRows(staged, Address("memory://staged"))

    def remove(self, staged: Staged) -> None:
        if self.fails:
            raise SinkUnavailable("staging", "remove", "the disk is gone")
        self.folders.discard(staged.url)


@dataclass
class Run(Numbered):
    """A batch that notes each time that it is run."""

    staging: Kept = field(default_factory=Kept)
    runs: int = 0

    def stage(self, folder: str) -> StagedRows:
        self.runs += 1
        self.staging.folders.add(folder)
        return super().stage(folder)


class Preparing(ModelSink):
    """Prepares as it is told to, and keeps what it has prepared by its token."""

    def __init__(self, prepare: Callable[[], None] = lambda: None, abort: Callable[[], None] = lambda: None) -> None:
        super().__init__(Written(), True, lambda _step: None)
        self.prepared: list[str] = []
        self._prepare, self._abort = prepare, abort

    def prepare(self, step: Step, rows: StagedRows) -> Any:
        self._prepare()
        self.prepared.append(rows.staged.url)
        return {"folder": rows.staged.url}

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        assert token["folder"] in self.prepared
        return super().commit(step, token, StagedRows(rows.staged, rows.place, pa.table({"n": [step.epoch]})))

    def abort(self, token: Any) -> None:
        self._abort()
        self.prepared.remove(token["folder"])


def fail(why: str) -> Callable[[], None]:
    def failing() -> None:
        raise SinkUnavailable("sink", "prepare", why)

    return failing


def epochs_of(staging: Staging, decided: MemoryStore, **sinks: Preparing) -> Epochs:
    holder = Holder("id", 0, "t")
    for sink in sinks.values():
        sink.fence(holder, NOTHING)
    held = {name: Held(sink, Target(NOTHING, 0)) for name, sink in sinks.items()}
    return Epochs("p", holder, held, [Ledger(decided)], staging, {}, look=None)


def first(staging: Kept) -> Run:
    return Run(NOTHING, Link(0, "x"), staging=staging)


def test_a_batch_is_run_once_and_all_sinks_prepare_at_the_same_time() -> None:
    """Each waits in its prepare for the two others to be there."""
    together = threading.Barrier(3, timeout=30)
    sinks = {name: Preparing(lambda: together.wait() and None) for name in "abc"}
    batch = first(Kept())
    epochs_of(batch.staging, MemoryStore(), **sinks).run(batch)
    assert batch.runs == 1
    assert [rows_of(sink.held) for sink in sinks.values()] == [[0]] * 3
    assert batch.staging.folders == set()


def test_if_one_can_not_prepare_the_others_are_aborted_and_nothing_is_staged_or_decided() -> None:
    decided = MemoryStore()
    sinks = {"a": Preparing(), "b": Preparing(fail("no room")), "c": Preparing()}
    batch = first(Kept())
    with pytest.raises(SinkUnavailable, match="no room"):
        epochs_of(batch.staging, decided, **sinks).run(batch)
    assert [sink.prepared for sink in sinks.values()] == [[], [], []]
    assert [rows_of(sink.held) for sink in sinks.values()] == [[], [], []]
    assert batch.staging.folders == set()
    assert decided.list("") == []


def test_an_attempt_that_is_given_up_leaves_what_another_has_staged_and_prepared() -> None:
    sinks = {"a": Preparing(), "b": Preparing(fail("no room"))}
    batch = first(Kept({"hf-0-0-another"}))
    sinks["a"].prepared.append("hf-0-0-another")
    with pytest.raises(SinkUnavailable):
        epochs_of(batch.staging, MemoryStore(), **sinks).run(batch)
    assert sinks["a"].prepared == ["hf-0-0-another"]
    assert batch.staging.folders == {"hf-0-0-another"}


def test_what_fails_while_an_attempt_is_given_up_does_not_hide_why_it_was() -> None:
    sinks = {
        "a": Preparing(abort=fail("gone away")),
        "b": Preparing(fail("no room")),
        "c": Preparing(fail("no rights")),
        "d": Preparing(),
    }
    batch = first(Kept(fails=True))
    with pytest.raises(SinkUnavailable, match="no room") as raised:
        epochs_of(batch.staging, MemoryStore(), **sinks).run(batch)
    assert sinks["d"].prepared == [], "the others are aborted all the same"
    told = "\n".join(raised.value.__notes__)
    assert all(why in told for why in ("no rights", "gone away", "the disk is gone"))


# ---- decided before ----


class Adopting(Preparing):
    """Takes staged files for its own."""

    def has_adopted(self, token: Any) -> bool:
        return True


@pytest.mark.parametrize("names", ["", "b"], ids=["removed", "renamed"])
def test_files_that_a_sink_has_adopted_stay_there_though_the_sink_goes_from_the_pipeline(names: str) -> None:
    staging = Kept()
    decision = epochs_of(staging, MemoryStore(), a=(table := Adopting())).run(first(staging))
    [adopted] = staging.folders
    holder = Holder("id", 1, "t1")
    table.fence(holder, NOTHING)
    held = {name: Held(table, Target(decision.after, 0)) for name in names}
    Epochs("p", holder, held, [], staging, {0: [decision]}, look=None).run(first(staging))
    assert staging.folders == {adopted}


@dataclass
class Rows(Batch):
    """A batch whose rows are said; they are staged in a dict."""

    there: dict[str, list[int]]
    rows: list[int]
    before: Link = NOTHING
    after: Link = field(default_factory=lambda: Link(0, "3"))
    offsets: bytes = b"v1"
    sources: Mapping[str, bytes] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    has_state: bool = True

    def stage(self, folder: str) -> StagedRows:
        self.there[folder] = self.rows
        return InDict(self.there).opened(Staged(folder, [], "", str(sorted(self.rows))))


@dataclass
class InDict(Staging):
    there: dict[str, list[int]]

    def opened(self, staged: Staged) -> StagedRows:
        return StagedRows(staged, Address("/nowhere"), pa.table({"n": self.there[staged.url]}))

    def open(self, staged: Staged) -> StagedRows | None:
        return self.opened(staged) if staged.url in self.there else None

    def remove(self, staged: Staged) -> None:
        self.there.pop(staged.url, None)


@pytest.mark.parametrize("rolls_back", [True, False], ids=["it can go back", "it can not"])
def test_other_rows_take_the_place_of_the_first_also_after_a_decision_for_one_sink_alone(rolls_back: bool) -> None:
    """One sink has the epoch of the first run; another is added, decided on alone, and dies before it has it."""
    targets, there, ledger = {"a": Written(), "b": Written()}, dict[str, list[int]](), Ledger(MemoryStore())

    def run(generation: int, names: str, rows: list[int], dies_at: str = "") -> None:
        holder, sinks = Holder("id", generation, f"t{generation}"), {}
        for name in names:
            sink = ModelSink(targets[name], rolls_back, lambda _step: None)
            marker = sink.fence(holder, NOTHING)
            sinks[name] = Held(sink, Target(marker.at, marker.decided))
        seen: list[str] = []

        def reach(step: str) -> None:
            seen.append(step)
            if step == dies_at and "prepared" in seen:
                raise Killed

        decided = sorted(ledger.read(), key=lambda each: (each.generation, each.attempt), reverse=True)
        known = {0: decided} if decided else {}
        epochs = Epochs("p", holder, sinks, [ledger], InDict(there), known, look=None, reach=reach)
        with suppress(Killed):
            epochs.run(Rows(there, rows))

    run(0, "a", [1, 2, 3], dies_at="committed a")
    run(1, "ab", [1, 2, 3], dies_at="looked")
    assert (rows_of(targets["a"]), rows_of(targets["b"])) == ([1, 2, 3], [])
    if rolls_back:
        run(2, "ab", [4, 5, 6])
        assert (rows_of(targets["a"]), rows_of(targets["b"])) == ([4, 5, 6], [4, 5, 6])
    else:
        with pytest.raises(NotDeterministic):
            run(2, "ab", [4, 5, 6])
        assert (rows_of(targets["a"]), rows_of(targets["b"])) == ([1, 2, 3], [])
