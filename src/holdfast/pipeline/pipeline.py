"""A pipeline: a PySpark query with named sources and transactional sinks, whose outputs go with its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from holdfast.checkpoint import Checkpoint
from holdfast.claim import Reason
from holdfast.decide.modes import refuse_mode
from holdfast.decide.schedule import Schedule, parse_duration, parse_every
from holdfast.errors import BadValue, PipelineExists
from holdfast.events import Listener, nobody, teller
from holdfast.handles import Repository, open_url
from holdfast.layout import check_name
from holdfast.pipeline.carrier import Carrier
from holdfast.pipeline.driver_states import DriverStates
from holdfast.pipeline.epoch import Epochs
from holdfast.pipeline.home import Home
from holdfast.pipeline.metrics import Metrics
from holdfast.pipeline.origins import Forked, PlainQuery
from holdfast.pipeline.replay import replay
from holdfast.pipeline.run import Run, Running
from holdfast.pipeline.schemas import arrow_schema
from holdfast.pipeline.staging import FolderStaging, choose_place
from holdfast.pipeline.starting import Recovery, Starting
from holdfast.pipeline.takeover import Taken, take_pipeline
from holdfast.publish import Publisher
from holdfast.sinks.contract import Sink
from holdfast.sinks.staged import StagedRows
from holdfast.spark import succession
from holdfast.spark.attach import Attached, Every
from holdfast.spark.capture import Capturer
from holdfast.spark.live import live_query
from holdfast.spark.places import SparkPlace

__all__ = ["Pipeline"]


class Pipeline:
    """A query from named sources into named sinks: exactly once through crash, restore, rewind and fork.

    `query` is called with the sources by their names and gives the rows to put out. Each sink takes every row of every
    epoch once. `changelog` lets rows that are updated be appended, each version of them. `states` are objects of the
    driver that are kept with each epoch and put back with it, as `CheckpointManager.register` takes them; `on_epoch`
    is called with the number and the staged rows of each epoch before it is committed, and may change them. Nothing
    runs before `start`.
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
        states: Mapping[str, object] | None = None,
        on_epoch: Callable[[int, StagedRows], None] = lambda _epoch, _rows: None,
    ) -> None:
        self.name = check_name("pipeline", name)
        self.sources = dict(sources)
        self.query = query
        self.sinks = dict(sinks)
        self.output_mode = output_mode
        self.states = DriverStates(states or {})
        self._on_epoch = on_epoch
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
        adopt: str | Path | None = None,
        replay: Literal["recorded", "free"] = "recorded",
        listener: Listener = nobody,
        metrics_port: int | None = None,
        replay_horizon: str | None = None,
    ) -> Run:
        """Run the pipeline, from where it stands: it recovers by itself if there is something to recover.

        This claims it: whoever ran it before is fenced, in the repository and in every sink. `checkpoint_dir` is where
        Spark's directories lie (./.holdfast/NAME on one machine), `trigger` as PySpark takes it. `adopt` names the
        checkpoint directory of a plain query that has stopped: the first start goes on from it, and later ones pass
        over it. Epochs that were decided and are not in the state run again on their recorded boundaries; with `replay`
        "free", for a changed query, sinks go back to the state instead, and Spark cuts them anew. `listener` is told of
        epochs, checkpoints, captures that fail, and of a take-over; `metrics_port` answers Prometheus on this machine.
        Decisions are kept as long as a checkpoint from which they lead on; with a `replay_horizon` ("30 days"), not for
        checkpoints that are older than that, which then stand for their state only.
        """
        metrics = Metrics(self.name)
        if metrics_port is not None:
            metrics.serve(metrics_port)
        with ExitStack() as stack:
            start = stack.enter_context(self._starting(repository, checkpoint_dir, options))
            start.horizon_ms = parse_duration(replay_horizon) if replay_horizon is not None else None
            if adopt is not None and not start.has_checkpoints():
                start.origin = PlainQuery(str(adopt), options or {})
            free = replay == "free"
            taken = take_pipeline(start.stored.records, Reason("start"), self.sinks, start.find, rewind=free)
            return self._run(start, taken, every, trigger, teller(metrics, listener), metrics, stack.pop_all())

    def rewind(
        self,
        repository: Repository | str,
        *,
        to: str,
        checkpoint_dir: str | Path | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Recovery:
        """Take state, offsets and every sink back to a checkpoint; the next start goes on from there.

        What came after it is given up. Refused before anything is touched if a sink can't go back. Can be killed at
        any instant and run again.
        """
        with self._starting(repository, checkpoint_dir, options) as start:
            start.target = start.stored[to].manifest
            taken = take_pipeline(start.stored.records, Reason("rewind"), self.sinks, start.find, rewind=True)
            with self._assembled(start, taken) as running:
                start.lay(taken, running.describe)
            return Recovery.of(start, taken)

    def fork(
        self,
        repository: Repository | str,
        *,
        of: Checkpoint | str,
        checkpoint_dir: str | Path | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Checkpoint:
        """Begin this pipeline with the state and the offsets of a checkpoint of another one; `start` goes on from it.

        It needs a name and sinks of its own, which get what comes after the checkpoint. `of` is such as
        "orders@before-upgrade", or a checkpoint of another repository. Can be killed at any instant and run again.
        """
        with self._starting(repository, checkpoint_dir, options) as start:
            if start.has_checkpoints():
                raise PipelineExists(self.name)
            start.origin = Forked(start.stored.repository.find(of) if isinstance(of, str) else of)
            start.is_mine = False  # It begins with the checkpoint, whatever lies in the folder.
            taken = take_pipeline(start.stored.records, Reason("fork"), self.sinks, start.find)
            with self._assembled(start, taken) as running:
                start.lay(taken, running.describe)
            assert start.first is not None
            return Checkpoint(start.stored, start.first.at)

    @contextmanager
    def _starting(
        self,
        repository: Repository | str,
        checkpoint_dir: str | Path | None,
        options: Mapping[str, str] | None,
    ) -> Iterator[Starting]:
        stored = (open_url(repository) if isinstance(repository, str) else repository).pipeline(self.name)
        frame = self.query(**self.sources)
        if not frame.isStreaming:
            raise BadValue("query", "its rows are not those of a stream")
        schema = arrow_schema(frame.schema)
        for sink in self.sinks.values():
            sink.session = frame.sparkSession
            sink.check(schema)
        home = Home(SparkPlace(str(self._place(checkpoint_dir, frame.sparkSession)), options or {}))
        with home.held() as is_mine:
            yield Starting(stored, home, frame, is_mine)

    def _place(self, given: str | Path | None, spark: SparkSession) -> str | Path:
        if given is not None:
            return given
        if not str(spark.sparkContext.master).startswith("local"):
            raise BadValue(
                "checkpoint_dir", "on a cluster say where Spark's directories lie: all machines must reach it"
            )
        return Path(".holdfast").absolute() / self.name

    @contextmanager
    def _assembled(self, start: Starting, taken: Taken, tell: Listener = nobody) -> Iterator[Running]:
        """What runs the epochs of a generation that was taken over."""
        generation = taken.generation.number
        publisher = Publisher(start.stored.records, generation, taken.found.follows)
        carrier = Carrier(generation, start.remote_ledger(), start.local_ledger(), start.trim_ledgers)
        with ExitStack() as stack:
            stack.callback(publisher.close)
            stack.callback(carrier.close)
            place, adopter = choose_place(start.home, list(self.sinks.values()))
            roots = [root for sink in self.sinks.values() if (root := sink.adopts_below)]
            recent = [several[0].staged for several in taken.decided.values()]
            staging = FolderStaging(
                place,
                [start.home.address("staging"), *roots],
                [(staged.rows, staged.size_bytes) for staged in recent],
            )
            self.states.restore(start.driver_states(taken))
            epochs = Epochs(
                self.name,
                taken.holder,
                # What is staged becomes the files of the one that adopts them: the others have read them by then.
                dict(sorted(taken.sinks.items(), key=lambda item: item[1].sink is adopter)),
                start.ledgers(self.sinks),
                staging,
                taken.decided,
                look=publisher.look_for_claim,
                note=carrier.note,
                states=self.states,
                on_epoch=self._on_epoch,
                reach=self._reach,
            )
            directory = start.home.directory(start.directory(taken))
            yield Running(epochs, directory, staging, self.states, carrier.join, taken.plan.state.at.epoch, tell)

    def _run(
        self,
        start: Starting,
        taken: Taken,
        every: Every,
        trigger: Mapping[str, object] | None,
        tell: Listener,
        metrics: Metrics,
        stack: ExitStack,
    ) -> Run:
        schedule = every if isinstance(every, Schedule) else parse_every(every)
        with stack:
            running = stack.enter_context(self._assembled(start, taken, tell))
            start.lay(taken, running.describe)
            name = start.directory(taken)
            writer = start.frame.writeStream.outputMode(self.output_mode).foreachBatch(running)
            writer = writer.option("checkpointLocation", start.home.spelled(name))
            replay(writer, start.home, name, taken, running)
            query = (writer.trigger(**trigger) if trigger else writer).start()  # type: ignore[call-overload]
            live = live_query(query)
            tip = start.first or taken.found.follows
            capturer = Capturer(
                start.stored.records,
                start.home.directory(name),
                spark_version=live.spark_version,
                standing=succession.Standing(taken.generation.number, tip),
                add=running.describe,
            )
            attached = Attached(live, start.stored, capturer, schedule, tell=tell)
            recovery, let_go = Recovery.of(start, taken), stack.pop_all().close
            return Run(start.stored, recovery, query, running, attached, metrics, let_go)
