"""A pipeline: a PySpark query with named sources and transactional sinks, whose outputs go with its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from holdfast.checkpoint import Checkpoint
from holdfast.claim import Reason
from holdfast.decide.modes import refuse_mode
from holdfast.decide.schedule import Schedule, parse_duration, parse_every
from holdfast.errors import BadValue, PipelineExists
from holdfast.events import Listener, nobody, teller
from holdfast.handles import Repository, StoredPipeline, open_url
from holdfast.layout import Slot, check_name
from holdfast.pipeline.changes import QueryGuard
from holdfast.pipeline.drill import DrillBatch, next_decision, tables_at
from holdfast.pipeline.driver_states import DriverStates
from holdfast.pipeline.home import Home
from holdfast.pipeline.identity import identify
from holdfast.pipeline.metrics import Metrics
from holdfast.pipeline.origins import Forked, PlainQuery
from holdfast.pipeline.plan import PipelinePlan
from holdfast.pipeline.preflight import Preflight
from holdfast.pipeline.reach import Reach, reach_of
from holdfast.pipeline.replay import replay as replay_epochs
from holdfast.pipeline.run import Run
from holdfast.pipeline.schemas import arrow_schema
from holdfast.pipeline.sources.of_query import sources_of
from holdfast.pipeline.staging import sweep
from holdfast.pipeline.starting import Recovery, Starting
from holdfast.pipeline.takeover import Taken, look_at_pipeline, take_pipeline
from holdfast.pipeline.work import LetGo, Work, at_work
from holdfast.sinks.contract import Sink, refuse_same
from holdfast.sinks.staged import StagedRows
from holdfast.spark import succession
from holdfast.spark.attach import Attached, Every
from holdfast.spark.capture import Capturer
from holdfast.spark.live import live_query
from holdfast.spark.places import SparkPlace
from holdfast.tables.contract import Table
from holdfast.tables.static import Static

__all__ = ["Pipeline"]

CONNECT = "pyspark.sql.connect."


class Pipeline:
    """A query from named sources into named sinks: exactly once through crash, restore, rewind and fork.

    `query` is called with the sources and the reference `tables` by their names and gives the rows to put out. Each
    sink takes every row of every epoch once. `changelog` lets rows that are updated be appended, each version of them.
    `states` are objects of the driver that are kept with each epoch and put back with it, as
    `CheckpointManager.register` takes them; `on_epoch` is called with the number and the staged rows of each epoch
    before it is committed, and may change them. Nothing runs before `start`.
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
        tables: Mapping[str, Table | DataFrame] | None = None,
        states: Mapping[str, object] | None = None,
        on_epoch: Callable[[int, StagedRows], None] = lambda _epoch, _rows: None,
    ) -> None:
        self.name = check_name("pipeline", name)
        self.sources = dict(sources)
        self.query = query
        self.sinks = dict(sinks)
        self.output_mode = output_mode
        self.tables = {key: each if isinstance(each, Table) else Static(each) for key, each in (tables or {}).items()}
        self.states = DriverStates(states or {})
        self.on_epoch = on_epoch
        self._reach: Callable[[str], None] = lambda _step: None
        if not self.sources:
            raise BadValue("sources", "a pipeline reads from one at least")
        if not self.sinks:
            raise BadValue("sinks", "a pipeline writes to one at least")
        for source_name, source in self.sources.items():
            if type(source).__module__.startswith(CONNECT):
                raise BadValue(f"source {source_name!r}", "a pipeline runs in its driver, and not on Spark Connect")
        if both := sorted(self.sources.keys() & self.tables.keys()):
            raise BadValue("tables", f"{both[0]!r} is the name of a source as well")
        for table_name, table in self.tables.items():
            table.name = table_name
        for sink_name, sink in self.sinks.items():
            check_name("sink", sink_name)
            if not isinstance(sink, Sink):
                raise BadValue(f"sink {sink_name!r}", f"{sink!r} is none: such as holdfast.sinks.Delta(…) gives one")
            sink.name = sink_name
            refuse_mode(sink_name, output_mode, sink.mode, changelog=changelog)
        refuse_same(self.sinks)

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
        adopt: str | Path | None = None,
        replay: Literal["recorded", "free"] = "recorded",
        accept: Sequence[str] = (),
        discard_foreign: bool = False,
        way_back: str | None = None,
        activate: bool = False,
        listener: Listener = nobody,
        metrics_port: int | None = None,
    ) -> Run:
        """Run the pipeline, from where it stands: it recovers by itself if there is something to recover.

        This claims it: whoever ran it before is fenced, in the repository and in every sink. `checkpoint_dir` is where
        Spark's directories lie (./.holdfast/NAME on one machine), `trigger` as PySpark takes it. `adopt` names the
        checkpoint directory of a plain query that has stopped: the first start goes on from it, and later ones pass
        over it. Epochs that were decided and are not in the state run again on their recorded boundaries; with `replay`
        "free", for a changed query, sinks go back to the state instead, and Spark cuts them anew.

        It is refused, with nothing touched, if the query is not the one that made the state, or if rows that would be
        read again are gone from their source, unless each is accepted by the name that `plan` gives (`accept`), and if
        a sink would lose what others wrote to it (unless `discard_foreign`). Sinks and the ledger keep the way back to
        the oldest checkpoint, or for so long (`way_back="30 days"`).

        With `activate` the repository is a copy, and the pipeline is taken over from wherever it ran until now: the
        sinks are fenced above what the original has counted to, and go back to what was copied.

        `listener` is told of epochs, checkpoints, epochs and captures that fail, and of a take-over; `metrics_port`
        answers Prometheus on this machine until the run ends.
        """
        schedule = every if isinstance(every, Schedule) else parse_every(every)
        way_back_ms = parse_duration(way_back) if way_back is not None else None
        metrics = Metrics(self.name)
        tell = teller(metrics, listener)
        with ExitStack() as stack:
            stack.callback(metrics.close)
            if metrics_port is not None:
                metrics.serve(metrics_port)
            start = stack.enter_context(self._starting(repository, checkpoint_dir, options, accept, way_back_ms))
            if adopt is not None and not start.has_checkpoints():
                start.origin = PlainQuery(str(adopt), options or {})
            why, rewind = "activate" if activate else "start", replay == "free"
            taken = self._take(start, why, accept, rewind=rewind, discard_foreign=discard_foreign, activate=activate)
            work = stack.enter_context(self._at_work(start, taken, tell))
            start.lay(taken, work.running.describe)
            start.guard.note(taken.generation.number)
            replay_epochs(
                lambda versions: self._writer(start, work, versions), start.home, work.name, taken, work.running
            )
            if start.may_clear:
                sweep(start.home.address("staging"), taken.generation.number)
            writer, over = self._writer(start, work, start.versions), work.running.newest()[0]
            query = (writer.trigger(**trigger) if trigger else writer).start()  # type: ignore[call-overload]
            live = live_query(query)
            capturer = Capturer(
                start.stored.records,
                start.home.directory(work.name),
                spark_version=live.spark_version,
                standing=succession.Standing(taken.generation.number, start.first or taken.found.follows),
                add=work.running.describe,
                over=over,
            )
            work.for_spark.holds = let_go = LetGo(stack.pop_all())
            attached = Attached(live, start.stored, capturer, schedule, tell=tell, then=let_go)
        return Run(start.stored, Recovery.of(start, taken), query, work.running, attached, metrics, let_go)

    def plan(
        self,
        repository: Repository | str,
        *,
        to: str | None = None,
        of: Checkpoint | str | None = None,
        checkpoint_dir: str | Path | None = None,
        options: Mapping[str, str] | None = None,
        accept: Sequence[str] = (),
        discard_foreign: bool = False,
    ) -> PipelinePlan:
        """What would happen if this query started from where the pipeline stands, or from the checkpoint `to`.

        With `to` it is what a rewind would do, with `of` a fork of that checkpoint, each with the same `accept` and
        `discard_foreign`. Nothing is claimed and nothing is touched. Print it, or look at its `verdict` and `findings`.
        """
        if to is not None and of is not None:
            raise BadValue("plan", "a rewind (to) or a fork (of), not both")
        with self._starting(repository, checkpoint_dir, options, accept, hold=False) as start:
            start.target = start.stored[to].manifest if to is not None else None
            done = self._fork_from(start, of) if of is not None else None
            records, rewind = start.stored.records, to is not None
            found, plan = look_at_pipeline(
                records, self.sinks, start.find, rewind=rewind, discard_foreign=discard_foreign, accept=accept
            )
            world, stand = records.world(), start.stand(found)
            preflight = Preflight(records, start.sources, past=start.past(rewind=rewind))
            sources = preflight.findings(world, found, stand) if stand is not None else []
            changes = start.guard.compare(world, found)
            return PipelinePlan.of(self.name, changes, found, plan, sources, accept, is_done=done is not None)

    def rewind(
        self,
        repository: Repository | str,
        *,
        to: str,
        checkpoint_dir: str | Path | None = None,
        options: Mapping[str, str] | None = None,
        accept: Sequence[str] = (),
        discard_foreign: bool = False,
    ) -> Recovery:
        """Take state, offsets and every sink back to a checkpoint; the next start goes on from there.

        What came after it is given up. Refused before anything is touched if a sink can't go back, and for the reasons
        that `start` has. Can be killed at any instant and run again.
        """
        with self._starting(repository, checkpoint_dir, options, accept) as start:
            start.target = start.stored[to].manifest
            taken = self._take(start, "rewind", accept, rewind=True, discard_foreign=discard_foreign)
            with self._at_work(start, taken, nobody) as work:
                start.lay(taken, work.running.describe)
            return Recovery.of(start, taken)

    def fork(
        self,
        repository: Repository | str,
        *,
        of: Checkpoint | str,
        checkpoint_dir: str | Path | None = None,
        options: Mapping[str, str] | None = None,
        accept: Sequence[str] = (),
    ) -> Checkpoint:
        """Begin this pipeline with the state and the offsets of a checkpoint of another one; `start` goes on from it.

        It needs a name and sinks of its own, which get what comes after the checkpoint. `of` is such as
        "orders@before-upgrade", or a checkpoint of another repository. A query that is not the one that made the
        state is refused as `start` refuses it. Can be killed at any instant and run again: what is done already, and
        was not started since, is given as it is.
        """
        with self._starting(repository, checkpoint_dir, options, accept) as start:
            done = self._fork_from(start, of)
            if done is not None:
                return Checkpoint(start.stored, done)
            taken = self._take(start, "fork", accept)
            with self._at_work(start, taken, nobody) as work:
                start.lay(taken, work.running.describe)
            assert start.first is not None
            return Checkpoint(start.stored, start.first.at)

    def reach(self, repository: Repository | str) -> list[Reach]:
        """Which checkpoints can still be gone back to, as the sinks and sources stand now, and for how long.

        All are asked and nothing is touched; the pipeline may run meanwhile.
        """
        stored = self._stored(repository)
        stored.require()
        return reach_of(stored, self.sinks, sources_of(self._frame(self._newest_tables()), self.sources))

    def drill(self, checkpoint: Checkpoint, directory: str | Path, *, timeout: str = "10 minutes") -> str:
        """Have Spark go on from a directory that a checkpoint was forked to, for one batch into nothing; say how.

        Forked, not restored: with the query's own id Spark stops the running one, if that is in this very driver.
        The batch is the next that was decided, where that is recorded, else what Spark cuts. Nothing of it is
        committed, no source is told that it was read, and no sink is opened: this may be done beside the running
        pipeline, and proves that it could be started. Raises SourcesGone if what comes next is not in the sources any
        more, and DrillFailed if Spark does not start. The directory is of no use for anything else afterwards.
        """
        recorded = next_decision(checkpoint)
        versions = self._newest_tables() | tables_at(checkpoint, recorded, self.tables)
        batch = DrillBatch(self.name, self._frame(versions), self.output_mode, checkpoint, recorded)
        batch.ask(self.sources)
        return batch.run(Path(directory).absolute(), parse_duration(timeout) / 1000)

    # ---- what they share ----

    def _stored(self, repository: Repository | str) -> StoredPipeline:
        return (open_url(repository) if isinstance(repository, str) else repository).pipeline(self.name)

    def _newest_tables(self) -> dict[str, str]:
        return {name: table.version() for name, table in self.tables.items()}

    def _frame(self, versions: Mapping[str, str]) -> DataFrame:
        """The rows to put out, with reference tables at these versions."""
        session = next(iter(self.sources.values())).sparkSession
        tables = {name: table.read(session, versions[name]) for name, table in self.tables.items()}
        frame = self.query(**self.sources, **tables)
        if not frame.isStreaming:
            raise BadValue("query", "its rows are not those of a stream")
        return frame

    @contextmanager
    def _starting(
        self,
        repository: Repository | str,
        checkpoint_dir: str | Path | None,
        options: Mapping[str, str] | None,
        accept: Sequence[str] = (),
        way_back_ms: int | None = None,
        *,
        hold: bool = True,
    ) -> Iterator[Starting]:
        versions = self._newest_tables()
        frame = self._frame(versions)
        session = frame.sparkSession
        schema = arrow_schema(frame.schema)
        for sink in self.sinks.values():
            sink.session = session
            sink.check(schema)
        home = Home(SparkPlace(str(self._place(checkpoint_dir, session)), options or {}))
        query = identify(frame, self.query, self.output_mode, self.sinks)
        stored = self._stored(repository)
        guard = QueryGuard(stored.records, session, home, query, accept)
        sources = sources_of(frame, self.sources)
        with ExitStack() as stack:
            is_mine = stack.enter_context(home.held()) if hold else home.is_free()
            yield Starting(
                stored,
                home,
                frame,
                versions,
                sources,
                guard,
                is_mine,
                way_back_ms=way_back_ms,
                reach=self._reach,
            )

    def _fork_from(self, start: Starting, of: Checkpoint | str) -> Slot | None:
        """Have it begin at a checkpoint of another; gives its own one if that was done before."""
        origin = Forked(start.stored.repository.find(of) if isinstance(of, str) else of)
        if start.has_checkpoints():
            done = start.begun_as(origin)
            if done is None:
                raise PipelineExists(self.name, start.began())
            return done
        start.origin = origin
        start.is_mine = False  # It begins with the checkpoint, whatever lies in the folder.
        return None

    def _place(self, given: str | Path | None, spark: SparkSession) -> str | Path:
        if given is not None:
            return given
        if not str(spark.sparkContext.master).startswith("local"):
            raise BadValue(
                "checkpoint_dir", "on a cluster say where Spark's directories lie: all machines must reach it"
            )
        return Path(".holdfast").absolute() / self.name

    def _take(
        self,
        start: Starting,
        why: str,
        accept: Sequence[str],
        *,
        rewind: bool = False,
        discard_foreign: bool = False,
        activate: bool = False,
    ) -> Taken:
        records = start.stored.records
        find = Preflight(records, start.sources, accept, past=start.past(rewind=rewind)).asking(start.find, start.stand)
        find = start.guard.over(find)
        return take_pipeline(
            records,
            Reason(why),
            self.sinks,
            find,
            rewind=rewind,
            discard_foreign=discard_foreign,
            accept=accept,
            activate=activate,
            reach=self._reach,
        )

    @contextmanager
    def _at_work(self, start: Starting, taken: Taken, tell: Listener) -> Iterator[Work]:
        self.states.restore(start.driver_states(taken))
        with at_work(self.name, start, taken, self.sinks, self.states, self.on_epoch, tell, self._reach) as work:
            yield work

    def _writer(self, start: Starting, work: Work, versions: Mapping[str, str]) -> DataStreamWriter:
        frame = start.frame if versions == start.versions else self._frame(versions)
        writer = frame.writeStream.outputMode(self.output_mode).foreachBatch(work.for_spark)
        return writer.option("checkpointLocation", start.home.spelled(work.name))
