"""The commit protocol of one epoch over several sinks: stage once, prepare all, decide, commit all.

Before the decision a failure aborts every sink; after it every sink is driven to the epoch, whatever crashes. The
order is the protocol. `reach` is called at each step by name: tests pause, kill and take over there.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.epochs import EpochDecision, Holder, Link, Staged, Step, Target
from holdfast.errors import HoldfastError, LostRace, NotDeterministic, OtherBoundaries, Refused, SinkFailed
from holdfast.ids import new_token, now_ms
from holdfast.pipeline.driver_states import DriverStates
from holdfast.pipeline.ledger import Ledger
from holdfast.sinks.contract import Sink, what_bars
from holdfast.sinks.staged import StagedRows

__all__ = ["Batch", "Epochs", "Held", "OtherRows", "Staging"]


class OtherRows(Exception):
    """A batch had to be run twice for one epoch, and its second run gave other rows than the first."""


class Batch(ABC):
    """One micro-batch of Spark's, which is run exactly once, by `stage`."""

    before: Link
    after: Link
    offsets: bytes
    """Spark's own record of it, and (`sources`) the entries of its sources' logs that belong to it."""
    sources: Mapping[str, bytes]
    tables: Mapping[str, str]
    has_state: bool
    """Whether it must be run to its end for its state, though its rows are known already."""

    @abstractmethod
    def stage(self, folder: str) -> StagedRows:
        """Run it and write its rows, durably and invisibly, into a folder that only this attempt writes.

        Raises OtherRows if its state could be that of one run and its rows those of another.
        """


class Staging(ABC):
    """Where rows are staged."""

    @abstractmethod
    def open(self, staged: Staged) -> StagedRows | None:
        """Rows that were staged, by whomever; None if they are gone, or are not the bytes that were decided."""

    @abstractmethod
    def remove(self, staged: Staged) -> None:
        """Take staged rows away; nothing there is fine. Never those that a sink has adopted."""


@dataclass
class Held:
    """A sink of this run, and where it stands."""

    sink: Sink
    at: Target

    def holds(self, step: Step) -> bool:
        return self.at.at.epoch >= step.epoch


class Epochs:
    """Commits the epochs of one generation, one after the other. Not for several threads.

    `decided` are the decisions that count on this timeline already, the best of each epoch first. A new one must be in
    all `ledgers` before any sink commits. Then `look` raises Fenced if a higher generation was claimed: it may have
    read the ledgers before, and a sink that can't go back must not hold what nobody knows. Where all can go back,
    `look` is None: what one holds too much is taken back. `note` is told of each decision. `on_epoch` is called with
    the rows of each epoch before its decision, in which the `states` go with it.
    """

    def __init__(
        self,
        pipeline: str,
        holder: Holder,
        sinks: Mapping[str, Held],
        ledgers: Iterable[Ledger],
        staging: Staging,
        decided: Mapping[int, Sequence[EpochDecision]],
        *,
        look: Callable[[], None] | None,
        note: Callable[[EpochDecision], None] = lambda _decision: None,
        states: DriverStates | None = None,
        on_epoch: Callable[[int, StagedRows], None] = lambda _epoch, _rows: None,
        reach: Callable[[str], None] = lambda _step: None,
    ) -> None:
        self.sinks = dict(sinks)
        self._pipeline = pipeline
        self._holder = holder
        self._ledgers = tuple(ledgers)
        self._staging = staging
        self._decided = {epoch: several[0] for epoch, several in decided.items()}
        self._look = look
        self._note = note
        self._states = states or DriverStates({})
        self._on_epoch = on_epoch
        self.seconds: dict[str, float] = {}
        """How long each part of the last epoch took."""
        self._reach = reach

    def run(self, batch: Batch) -> EpochDecision:
        """Commit a batch in every sink; once this returns, Spark may write its commit log. Gives what was decided."""
        self.seconds.clear()
        known = self._decided.get(batch.after.epoch)
        if known is None:
            self._commit(*self._decide(batch, self._stage(batch), 0))
        elif known.offsets != batch.offsets:
            raise OtherBoundaries(self._pipeline, batch.after.epoch)
        else:
            self._run_again(known, batch)
        # None before it is asked for again, and a driver may run for months.
        for past in [epoch for epoch in self._decided if epoch < batch.after.epoch]:
            del self._decided[past]
        return self._decided[batch.after.epoch]

    def _run_again(self, known: EpochDecision, batch: Batch) -> None:
        """Run an epoch that was decided before, for its state, and drive to it those sinks that lack it.

        They get the rows of the first run. If these are gone, every sink held the epoch once and some were taken back
        since; if they are damaged, nobody may have them. Then they get the rows of this run. A run that gives other
        rows than the first takes its place in all.
        """
        lacking = {name for name, held in self.sinks.items() if not held.holds(known.step)}
        first = self._staging.open(known.staged) if lacking and lacking <= set(known.tokens) else None
        self._record(known)
        if not batch.has_state and (first or not lacking):
            self._states.restore(known.states)
            self._commit(known, first)
            return
        again = self._stage(batch)
        if again.staged.digest == known.staged.digest:
            if not lacking or first:
                self._staging.remove(again.staged)
                self._states.restore(known.states)
                self._commit(known, first)
                return
        else:
            self._take_back(known)
        mine = known.generation == self._holder.generation
        self._commit(*self._decide(batch, again, known.attempt + 1 if mine else 0, known.backs))

    # ---- the steps ----

    def _stage(self, batch: Batch) -> StagedRows:
        self._reach("begin")
        with self._timed("stage"):
            try:
                rows = batch.stage(f"hf-{self._holder.generation}-{batch.after.epoch}-{new_token()}")
            except OtherRows as error:
                why = "which of them its state is made of is not known: it was larger than those before, and run twice"
                raise NotDeterministic(self._pipeline, batch.after.epoch, why) from error
        self._reach("staged")
        return rows

    def _decide(
        self, batch: Batch, rows: StagedRows, attempt: int, earlier: Mapping[str, Target] | None = None
    ) -> tuple[EpochDecision, StagedRows]:
        """Decide an epoch. `earlier` is the way back to before it of the sinks that hold it by another decision."""
        step = Step(self._holder.generation, batch.before, batch.after)
        self._on_epoch(step.epoch, rows)
        with self._timed("prepare"):
            tokens = self._prepare(step, rows)
        decision = EpochDecision(
            token=new_token(),
            generation=step.decided,
            attempt=attempt,
            before=step.before,
            after=step.after,
            offsets=batch.offsets,
            sources=dict(batch.sources),
            staged=rows.staged,
            tokens=tokens,
            backs={n: held.at for n, held in self.sinks.items() if not held.holds(step)}
            | {n: back for n, back in (earlier or {}).items() if n in self.sinks and self.sinks[n].holds(step)},
            tables=dict(batch.tables),
            states=self._states.save(),
            created_ms=now_ms(),
        )
        self._reach("prepared")
        self._record(decision)
        self._decided[step.epoch] = decision
        return decision, rows

    def _record(self, decision: EpochDecision) -> None:
        """Have a decision stand in every ledger, also one that was found in only some: no sink may know more."""
        with self._timed("decide"):
            for ledger in self._ledgers:
                ledger.add(decision)
                self._reach("decided" if ledger is self._ledgers[-1] else "half decided")
            self._note(decision)
            if self._look is not None:
                self._look()
        self._reach("looked")

    def _prepare(self, step: Step, rows: StagedRows) -> dict[str, Any]:
        """Prepare every sink that lacks the epoch, all at once. If one can't, the others are aborted."""
        sinks = {name: held.sink for name, held in self.sinks.items() if not held.holds(step)}
        with ThreadPoolExecutor(max(1, len(sinks)), thread_name_prefix="holdfast-prepare") as pool:
            under_way = {name: pool.submit(sink.prepare, step, rows) for name, sink in sinks.items()}
        failures = [error for prepared in under_way.values() if (error := prepared.exception())]
        if not failures:
            return {name: prepared.result() for name, prepared in under_way.items()}
        first, *others = failures
        for other in others:
            first.add_note(f"and meanwhile: {other}")
        done = {name: prepared.result() for name, prepared in under_way.items() if prepared.exception() is None}
        undo = [partial(sinks[name].abort, token) for name, token in done.items()]
        for take_away in (*undo, partial(self._staging.remove, rows.staged)):
            try:
                take_away()
            except Exception as error:  # noqa: BLE001 - what came first is raised, and nobody sees what stays
                first.add_note(f"and what it had prepared could not be taken away: {error}")
        raise first

    def _commit(self, decision: EpochDecision, rows: StagedRows | None) -> None:
        """Commit in every sink that lacks the epoch. All are tried; the next start drives those on that failed."""
        failures: dict[str, HoldfastError] = {}
        for name, held in self.sinks.items():
            if held.holds(decision.step):
                continue
            assert rows is not None
            try:
                with self._timed(f"commit {name}"):
                    position = held.sink.commit(decision.step, decision.tokens[name], rows)
            except HoldfastError as error:
                failures[name] = error
                continue
            held.at = Target(decision.after, decision.generation, position)
            self._reach(f"committed {name}")
        for name, failure in failures.items():
            if isinstance(failure, LostRace | Refused):
                raise failure
            raise SinkFailed(name, f"epoch {decision.epoch}", str(failure)) from failure
        # A sink that has gone from the pipeline since may have adopted them: its table is still somebody's.
        tokens = decision.tokens.items()
        if all(name in self.sinks and not self.sinks[name].sink.has_adopted(token) for name, token in tokens):
            self._staging.remove(decision.staged)
        self._reach("committed")

    def _take_back(self, known: EpochDecision) -> None:
        """The first run's rows must go from every sink, or from none."""
        holding = {name: held for name, held in self.sinks.items() if held.holds(known.step)}
        stuck = [name for name, held in holding.items() if not _can_lose(held, known, known.backs.get(name))]
        if stuck:
            why = f"{', '.join(stuck)} can't take the first ones back"
            raise NotDeterministic(self._pipeline, known.epoch, why)
        for name, held in holding.items():
            held.sink.roll_back(known.backs[name])
            held.at = known.backs[name]
            self._reach(f"taken back {name}")

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - began


def _can_lose(held: Held, known: EpochDecision, back: Target | None) -> bool:
    """Whether a sink can lose the epoch that it holds: who took part in no decision on it knows no way back."""
    return back is not None and back.at.epoch < known.epoch and what_bars(held.sink, back) is None
