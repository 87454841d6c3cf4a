"""A pipeline: a PySpark query with named sources and transactional sinks, whose outputs go with its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from holdfast.claim import Reason
from holdfast.decide.modes import refuse_mode
from holdfast.decide.schedule import Schedule, parse_every
from holdfast.decide.start import Known
from holdfast.decide.timeline import World, newest
from holdfast.epochs import Link
from holdfast.errors import BadValue, InvalidManifest
from holdfast.handles import Repository, StoredPipeline, open_url
from holdfast.ids import new_token
from holdfast.layout import check_name
from holdfast.manifest import Manifest
from holdfast.pipeline.changes import QueryGuard
from holdfast.pipeline.epoch import Epochs
from holdfast.pipeline.home import Home, Standing, new_directory
from holdfast.pipeline.identity import identify
from holdfast.pipeline.ledger import Ledger, merged
from holdfast.pipeline.links import link_of_manifest
from holdfast.pipeline.plan import PipelinePlan
from holdfast.pipeline.replay import replay
from holdfast.pipeline.run import Run, Running
from holdfast.pipeline.schemas import arrow_schema
from holdfast.pipeline.staging import FolderStaging
from holdfast.pipeline.takeover import Found, Taken, look_at_pipeline, take_pipeline
from holdfast.publish import Publisher
from holdfast.recovery import Demands, choose
from holdfast.sinks.contract import Sink
from holdfast.spark import succession
from holdfast.spark.attach import Attached, Every
from holdfast.spark.capture import Capturer
from holdfast.spark.lay import lay_down
from holdfast.spark.live import live_query
from holdfast.spark.places import SparkPlace

__all__ = ["Pipeline"]


class Pipeline:
    """A query from named sources into named sinks: exactly once through crash, restore and rewind.

    `query` is called with the sources by their names and gives the rows to put out. Each sink takes every row of every
    epoch once. `changelog` lets rows that are updated be appended, each version of them. Nothing runs before `start`.
    """

    def __init__(
        self,
        name: str,
        *,
        sources: Mapping[str, DataFrame],
        query: Callable[..., DataFrame],
        sinks: Mapping[str, Sink],
        output_mode: str = "append",
        changelog: bool = False,
    ) -> None:
        self.name = check_name("pipeline", name)
        self.sources = dict(sources)
        self.query = query
        self.sinks = dict(sinks)
        self.output_mode = output_mode
        self._reach: Callable[[str], None] = lambda _step: None
        if not self.sources:
            raise BadValue("sources", "a pipeline reads from one at least")
        if not self.sinks:
            raise BadValue("sinks", "a pipeline writes to one at least")
        for sink_name, sink in self.sinks.items():
            check_name("sink", sink_name)
            sink.name = sink_name
            refuse_mode(sink_name, output_mode, sink.mode, changelog=changelog)

    def __repr__(self) -> str:
        return f"<holdfast.Pipeline {self.name!r}: {', '.join(self.sources)} into {', '.join(self.sinks)}>"

    def start(
        self,
        repository: Repository | str,
        *,
        checkpoint_dir: str | Path | None = None,
        every: Every = "30 seconds",
        trigger: Mapping[str, object] | None = None,
        options: Mapping[str, str] | None = None,
        accept: Sequence[str] = (),
    ) -> Run:
        """Run the pipeline, from where it stands: it recovers by itself if there is something to recover.

        This claims it: whoever ran it before is fenced, in the repository and in every sink. `checkpoint_dir` is where
        Spark's directories lie (./.holdfast/NAME on one machine), `trigger` as PySpark takes it. A query that is not
        the one that made the state is refused, before anything is touched, unless what changed is harmless or accepted:
        `accept` has the names that `plan` gives.
        """
        with ExitStack() as stack:
            start = self._starting(repository, checkpoint_dir, options, stack, accept=accept)
            taken = take_pipeline(start.stored.records, Reason("start"), self.sinks, start.guard.over(start.find))
            return self._run(start, taken, every, trigger, stack.pop_all())

    def plan(
        self,
        repository: Repository | str,
        *,
        to: str | None = None,
        checkpoint_dir: str | Path | None = None,
        options: Mapping[str, str] | None = None,
    ) -> PipelinePlan:
        """What would happen if this query started from where the pipeline stands, or from the checkpoint `to`.

        Nothing is claimed and nothing is touched. Print it, or look at its `verdict` and `findings`.
        """
        with ExitStack() as stack:
            start = self._starting(repository, checkpoint_dir, options, stack, to=to, hold=False)
            records = start.stored.records
            found, plan = look_at_pipeline(records, self.sinks, start.find, rewind=to is not None)
            return PipelinePlan.of(self.name, start.guard.compare(records.world(), found), found, plan)

    def rewind(
        self,
        repository: Repository | str,
        *,
        to: str,
        checkpoint_dir: str | Path | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Take state, offsets and every sink back to a checkpoint; the next start goes on from there.

        What came after it is given up. Refused before anything is touched if a sink can't go back. Can be killed at
        any instant and run again.
        """
        with ExitStack() as stack:
            start = self._starting(repository, checkpoint_dir, options, stack, to=to)
            taken = take_pipeline(start.stored.records, Reason("rewind"), self.sinks, start.find, rewind=True)
            start.lay(taken)

    def _starting(
        self,
        repository: Repository | str,
        checkpoint_dir: str | Path | None,
        options: Mapping[str, str] | None,
        stack: ExitStack,
        to: str | None = None,
        accept: Sequence[str] = (),
        *,
        hold: bool = True,
    ) -> _Start:
        stored = (open_url(repository) if isinstance(repository, str) else repository).pipeline(self.name)
        frame = self.query(**self.sources)
        if not frame.isStreaming:
            raise BadValue("query", "its rows are not those of a stream")
        schema = arrow_schema(frame.schema)
        for sink in self.sinks.values():
            sink.check(schema)
        home = Home(SparkPlace(str(self._place(checkpoint_dir, frame.sparkSession)), options or {}))
        query = identify(frame, self.query, self.output_mode, self.sinks)
        guard = QueryGuard(self.name, frame.sparkSession, home, query, accept)
        is_mine = stack.enter_context(home.held()) if hold else home.is_free()
        target = stored[to].manifest if to is not None else None
        return _Start(stored, home, frame, guard, is_mine, target)

    def _place(self, given: str | Path | None, spark: SparkSession) -> str | Path:
        if given is not None:
            return given
        if not str(spark.sparkContext.master).startswith("local"):
            raise BadValue(
                "checkpoint_dir", "on a cluster say where Spark's directories lie: all machines must reach it"
            )
        return Path(".holdfast").absolute() / self.name

    def _run(
        self, start: _Start, taken: Taken, every: Every, trigger: Mapping[str, object] | None, stack: ExitStack
    ) -> Run:
        with stack:
            name = start.lay(taken)
            generation = taken.generation.number
            start.guard.note(generation)
            directory = start.home.directory(name)
            staging = FolderStaging(start.home.address("staging"), start.home.spelled("staging"))
            publisher = Publisher(start.stored.records, generation, taken.found.follows)
            stack.callback(publisher.close)
            epochs = Epochs(
                self.name,
                taken.holder,
                taken.sinks,
                start.ledgers(self.sinks),
                staging,
                taken.decided,
                look=publisher.look_for_claim,
                reach=self._reach,
            )
            running = Running(epochs, directory, staging, taken.plan.state.at.epoch, start.guard.mine)
            location = start.home.spelled(name)
            writer = start.frame.writeStream.outputMode(self.output_mode).foreachBatch(running)
            writer = writer.option("checkpointLocation", location)
            replay(writer, start.home, name, taken, running)
            query = (writer.trigger(**trigger) if trigger else writer).start()  # type: ignore[call-overload]
            live = live_query(query)
            capturer = Capturer(
                start.stored.records,
                directory,
                spark_version=live.spark_version,
                standing=succession.Standing(generation, taken.found.follows),
                add=running.describe,
            )
            schedule = every if isinstance(every, Schedule) else parse_every(every)
            attached = Attached(live, start.stored, capturer, schedule)
            return Run(start.stored, generation, query, running, attached, stack.pop_all().close)


@dataclass
class _Start:
    """What one start or rewind works with."""

    stored: StoredPipeline
    home: Home
    frame: DataFrame
    guard: QueryGuard
    is_mine: bool
    """Whether the folder is held: only then may a directory that is there be gone on in."""
    target: Manifest | None
    standing: Standing | None = None

    def find(self, world: World) -> Found:
        """What there is to go on from: a directory that can be gone on in, else the newest whole checkpoint."""
        decisions = merged(self._local().read(), self._remote().read())
        if self.target is not None:
            return Found(Known("checkpoint", _link(self.target)), self.target, decisions)
        slot = newest(world)
        manifest = self.stored.records.manifest(slot) if slot else None
        at = _link(manifest) if manifest else None
        self.standing = self.home.standing(world) if self.is_mine else None
        if self.standing is not None and (at is None or self.standing.at.epoch >= at.epoch):
            return Found(Known("warm", self.standing.at), manifest, decisions)
        chosen = choose(self.stored.records, Demands()).manifest
        if chosen is None:
            return Found(Known("nothing"), None, decisions)
        return Found(Known("checkpoint", _link(chosen)), chosen, decisions)

    def lay(self, taken: Taken) -> str:
        """The directory that this generation runs in; one that is gone on in stays where it is."""
        generation = taken.generation.number
        if taken.plan.state.kind == "warm" and self.standing is not None:
            name = self.standing.directory
        else:
            name = new_directory(generation)
            if taken.found.follows is not None and taken.plan.state.kind == "checkpoint":
                place = self.home.spelled(name)
                options = self.home.place.options
                lay_down(self.stored.records, taken.found.follows, place, options=options, state_only=True)
        self.home.note_run(generation, name, new_token())
        return name

    def ledgers(self, sinks: Mapping[str, Sink]) -> list[Ledger]:
        """Where a decision must be before a sink commits: with one that can't go back, in the repository too."""
        can_all = all(type(sink).roll_back is not Sink.roll_back for sink in sinks.values())
        return [self._local()] if can_all else [self._local(), self._remote()]

    def _local(self) -> Ledger:
        return Ledger(self.home.address("ledger").store())

    def _remote(self) -> Ledger:
        records = self.stored.records
        return Ledger(records.store, f"{records.keys.prefix}ledger/")


def _link(manifest: Manifest) -> Link:
    link = link_of_manifest(manifest)
    if link is None:
        raise InvalidManifest(str(manifest.at), ["it was captured from a plain query, not from a pipeline"])
    return link
