"""A generation at work: what runs its epochs, where it stages them, and what carries their decisions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from pyspark.sql import DataFrame

from holdfast.decide.query_identity import has_operators
from holdfast.events import Listener
from holdfast.pipeline.carrier import Carrier
from holdfast.pipeline.driver_states import DriverStates
from holdfast.pipeline.epoch import Epochs
from holdfast.pipeline.preflight import Identities
from holdfast.pipeline.run import Running
from holdfast.pipeline.staging import FolderStaging, choose_place
from holdfast.pipeline.starting import Starting
from holdfast.pipeline.takeover import Taken
from holdfast.pipeline.upkeep import Upkeep
from holdfast.publish import Publisher
from holdfast.sinks.contract import Sink
from holdfast.sinks.staged import StagedRows

__all__ = ["LetGo", "Work", "at_work"]


class ForSpark:
    """What foreachBatch calls. Spark keeps it for as long as its session lives: a run that is over is let go of.

    Until then it keeps what the run holds (`holds`): nobody has to keep the handle of a query that runs.
    """

    def __init__(self, running: Running) -> None:
        self._run_epoch: Callable[[DataFrame, int], None] = running
        self.holds: object = None

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        self._run_epoch(frame, epoch)

    def let_go(self) -> None:
        self._run_epoch, self.holds = _over, None


def _over(_frame: DataFrame, epoch: int) -> None:
    raise RuntimeError(f"epoch {epoch} of a query whose run is over")


class LetGo:
    """Closes what a run holds, once, whoever asks for it first; the others wait until that is done."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._held.close()


class Work(NamedTuple):
    """A generation's epochs, as they run and as Spark calls them, and the name of the directory that they work in."""

    running: Running
    for_spark: ForSpark
    name: str


@contextmanager
def at_work(
    pipeline: str,
    start: Starting,
    taken: Taken,
    sinks: Mapping[str, Sink],
    states: DriverStates,
    on_epoch: Callable[[int, StagedRows], None],
    tell: Listener,
    reach: Callable[[str], None],
) -> Iterator[Work]:
    """Put together what runs the epochs of a generation that was taken over. The sinks are fenced by now."""
    generation = taken.generation.number
    publisher = Publisher(start.stored.records, generation, taken.found.follows)
    carrier = Carrier(generation, start.remote_ledger(), start.local_ledger(), start.trim_ledgers)
    with ExitStack() as stack:
        stack.callback(publisher.close)
        stack.callback(carrier.close)
        place, adopter = choose_place(start.home, list(sinks.values()))
        roots = [root for sink in sinks.values() if (root := sink.adopts_below)]
        name, recent = start.directory(taken), [several[0].staged for several in taken.decided.values()]
        if start.was_begun(taken):
            # It may have failed for its size: the executors take it, whatever it is.
            recent = []
        staging = FolderStaging(
            place,
            [start.home.address("staging"), *roots],
            [(staged.rows, staged.size_bytes) for staged in recent],
            compares=len(sinks) > 1 or not start.go_back(sinks) or has_operators(start.guard.mine.parts),
        )
        ledgers = start.ledgers(sinks)
        epochs = Epochs(
            pipeline,
            taken.holder,
            # What is staged becomes the files of the one that adopts them: the others have read them by then.
            dict(sorted(taken.sinks.items(), key=lambda item: item[1].sink is adopter)),
            ledgers,
            staging,
            taken.decided,
            look=publisher.look_for_claim if len(ledgers) > 1 else None,
            note=carrier.note,
            states=states,
            on_epoch=on_epoch,
            reach=reach,
        )

        def clear() -> None:
            if start.may_clear:
                start.home.clear(generation, name)

        running = Running(
            epochs,
            start.home.directory(name),
            staging,
            states,
            Upkeep(start.stored, sinks, start.way_back_ms, clear),
            taken.plan.state.at.epoch,
            query=start.guard.mine,
            tables=start.versions,
            add_sources=Identities(start.sources).add,
            join=carrier.join,
            look=publisher.look_for_claim,
            tell=tell,
        )
        for_spark = ForSpark(running)
        stack.callback(for_spark.let_go)
        yield Work(running, for_spark, name)
