"""Attached to a running query: captures behind its back, checkpoints on demand, a stop between batches."""

from __future__ import annotations

import gc
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import holdfast
from holdfast.errors import (
    BadName,
    BadURL,
    CannotAttach,
    Fenced,
    ForkedProcess,
    NameTaken,
    NotAttached,
    NotCapturable,
    NoWholeBatch,
    OtherTimeline,
    StoreUnavailable,
)
from holdfast.handles import Repository, StoredPipeline
from holdfast.spark import following
from holdfast.spark.following import Follower
from holdfast.spark.live import live_query
from holdfast.store import open_store
from holdfast.testing.faults import Around
from spark.attaching import ROWS, assert_counts, committed, counting, until
from spark.events import files_of
from spark.proof import Truth, after, run_on
from spark.replay import assert_all_restore
from spark.session import SPARK_VERSION
from spark.workloads import WORKLOADS, configured, run

T = TypeVar("T")
ON_DEMAND = holdfast.Schedule()


@pytest.fixture(autouse=True)
def _nothing_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()
    following._leave_all()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return holdfast.open(str(tmp_path / "repository"), create=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where Spark keeps its checkpoint."""
    return tmp_path / "checkpoint"


def epochs(pipeline: StoredPipeline) -> list[int]:
    return [checkpoint.epoch for checkpoint in pipeline.checkpoints()]


def over(query: StreamingQuery) -> int:
    """The batch of the last progress; -1 if there is none."""
    progress = query._jsq.lastProgress()
    return -1 if progress is None else int(progress.batchId())


def consume(batch: DataFrame, _number: int) -> None:
    batch.write.format("noop").mode("append").save()


def counted(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> list[None]:
    """A list that grows with every call of a method from now on."""
    calls: list[None] = []
    method = getattr(kind, name)

    def call(self: object) -> object:
        calls.append(None)
        return method(self)

    monkeypatch.setattr(kind, name, call)
    return calls


# ---- in the background ----


@pytest.mark.matrix
def test_one_line_captures_a_running_query(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    query = counting(spark, place)
    attached = holdfast.attach(query, repository, pipeline="counts", every="1 batch")
    until(lambda: attached.status().captures >= 6)
    assert query.isActive
    attached.stop()
    taken = assert_all_restore(attached.pipeline.records, tmp_path)
    assert taken[-1] == committed(place)
    for checkpoint in random.sample(attached.pipeline.checkpoints(), 2):
        assert_counts(spark, checkpoint, tmp_path)


def test_the_status_tells_how_it_stands(spark: SparkSession, repository: Repository, place: Path) -> None:
    query = counting(spark, place)
    attached = holdfast.attach(query, repository.url, pipeline="counts", every=ON_DEMAND)
    before = attached.status()
    assert (before.capturing, before.generation, before.last_slot, before.captures) == (True, None, None, 0)
    checkpoint = attached.checkpoint()
    status = attached.status()
    assert (status.query_id, status.directory) == (query.id, f"file:{place}")
    assert (status.generation, status.last_slot, status.last_epoch) == (0, checkpoint.slot, checkpoint.epoch)
    assert (status.captures, status.failures, status.last_error, status.fenced) == (1, 0, None, None)
    assert status.last_batch is not None
    assert status.last_age_seconds is not None
    assert checkpoint.manifest.spark_version == spark.version
    assert attached.pipeline.generations()[0].claim.why == "attach"


def test_batches_between_two_checkpoints_are_counted(spark: SparkSession, repository: Repository, place: Path) -> None:
    attached = holdfast.attach(counting(spark, place), repository, pipeline="counts", every="3 batches")
    until(lambda: attached.status().captures >= 3)
    taken = epochs(attached.pipeline)
    assert all(later - earlier >= 3 for earlier, later in itertools.pairwise(taken))


def test_time_between_two_checkpoints_is_kept(spark: SparkSession, repository: Repository, tmp_path: Path) -> None:
    often, seldom = (
        holdfast.attach(counting(spark, tmp_path / every), repository, pipeline=every.replace(" ", "-"), every=every)
        for every in ("10 ms", "1 hour")
    )
    until(lambda: often.status().captures > 4 and (seldom.status().last_batch or 0) > 4)
    assert seldom.status().captures == 1, "the first does not wait for its time"


def test_a_query_without_a_new_batch_is_not_captured_again(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    query = counting(spark, place, processingTime="1 hour")
    attached = holdfast.attach(query, repository, pipeline="counts", every="1 ms")
    first = attached.checkpoint()
    time.sleep(0.3)
    assert attached.checkpoint().slot == first.slot
    assert attached.status().captures == 1


def test_a_query_without_a_new_batch_is_looked_at_and_hardly_asked(
    spark: SparkSession, repository: Repository, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, questions = counted(monkeypatch, Follower, "_has_committed"), counted(monkeypatch, Follower, "_step")
    query = counting(spark, place, processingTime="1 hour")
    attached = holdfast.attach(query, repository, pipeline="counts", every="1 batch")
    until(lambda: attached.status().captures == 1)
    looks.clear()
    questions.clear()
    until(lambda: len(looks) >= 60)
    assert len(questions) < 20


def test_the_captures_go_on_without_the_handle(spark: SparkSession, repository: Repository, place: Path) -> None:
    holdfast.attach(counting(spark, place), repository, pipeline="counts", every="1 batch")
    gc.collect()
    until(lambda: repository.pipeline("counts").exists() and len(repository.pipeline("counts").checkpoints()) > 2)


@pytest.mark.parametrize(
    ("name", "store"),
    [
        ("window", "changelog"),
        pytest.param("join-left-3", "changelog-2", marks=pytest.mark.soak),
        pytest.param("tws-pandas", "rocksdb-2", marks=pytest.mark.soak),
        ("dedup", "hdfs"),
    ],
)
def test_what_is_captured_of_a_query_runs_on_as_it_did(
    spark: SparkSession, repository: Repository, tmp_path: Path, name: str, store: str
) -> None:
    handles: list[holdfast.Attached] = []

    def on_batch(_number: int) -> None:
        if not handles:
            handles.append(holdfast.attach(spark.streams.active[0], repository, pipeline="it", every="1 batch"))

    workload = WORKLOADS[name]
    outputs = run(spark, workload, store, tmp_path / "inputs", str(tmp_path / "checkpoint"), on_batch=on_batch)
    handles[0].detach()
    truth = Truth(workload, store, tmp_path / "inputs", outputs, handles[0].pipeline)
    taken = assert_all_restore(truth.pipeline.records, tmp_path)
    assert taken[-1] == max(outputs), "the last batch too"
    # A batch without data, as the last one may be, waits for more after any restart.
    for cut in random.sample(taken[:-3], 2):
        assert run_on(spark, truth, cut, tmp_path / f"from-{cut}") == after(outputs, cut)


def capture_at_full_speed(
    spark: SparkSession, repository: Repository, tmp_path: Path, retain: int, captures: int
) -> None:
    conf = {"spark.sql.streaming.minBatchesToRetain": str(retain)}
    query = counting(spark, tmp_path / "checkpoint", conf=conf)
    attached = holdfast.attach(query, repository, pipeline="counts", every="1 batch")
    rounds = 0
    while attached.status().captures < captures:
        if rounds % 5 == 0:
            attached.checkpoint(savepoint=f"now-{rounds}")
        rounds += 1
        time.sleep(random.uniform(0, 0.2))
        assert query.isActive
    assert not attached.stop().interrupted or query.exception() is None
    assert attached.status().failures == 0
    taken = assert_all_restore(attached.pipeline.records, tmp_path)
    assert taken[-1] == committed(tmp_path / "checkpoint")
    for checkpoint in random.sample(attached.pipeline.checkpoints(), 4):
        assert_counts(spark, checkpoint, tmp_path)


def test_whatever_is_captured_at_full_speed_restores(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    capture_at_full_speed(spark, repository, tmp_path, retain=2, captures=40)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("retain", [2, 100])
def test_hundreds_of_captures_at_full_speed_restore(
    spark: SparkSession, repository: Repository, tmp_path: Path, retain: int
) -> None:
    capture_at_full_speed(spark, repository, tmp_path, retain, captures=500)


# ---- on demand ----


@pytest.mark.matrix
def test_a_checkpoint_is_at_least_as_new_as_the_call(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    query = counting(spark, place)
    attached = holdfast.attach(query, repository, pipeline="counts", every=ON_DEMAND)

    def ask(number: int) -> None:
        before = over(query)
        checkpoint = attached.checkpoint(savepoint=f"s{number}")
        assert checkpoint.epoch >= before
        assert attached.pipeline[f"s{number}"].slot == checkpoint.slot

    for number in range(5):
        ask(number)
        time.sleep(random.uniform(0, 0.3))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(5, 25)))
    assert_all_restore(attached.pipeline.records, tmp_path)


def test_the_first_checkpoint_waits_for_the_first_batch(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    go_on = threading.Event()

    def each(batch: DataFrame, number: int) -> None:
        go_on.wait()
        consume(batch, number)

    attached = holdfast.attach(counting(spark, place, each), repository, pipeline="counts", every=ON_DEMAND)
    with pytest.raises(TimeoutError):
        attached.checkpoint(timeout=0.3)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(attached.checkpoint)
        time.sleep(0.3)
        assert not asked.done()
        go_on.set()
        assert asked.result().epoch == 0


def test_a_checkpoint_can_be_taken_from_within_a_batch(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    handles: list[holdfast.Attached] = []
    taken: dict[int, int] = {}

    def each(batch: DataFrame, number: int) -> None:
        if number > 1 and handles:
            taken[number] = handles[0].checkpoint().epoch
        consume(batch, number)

    handles.append(holdfast.attach(counting(spark, place, each), repository, pipeline="counts", every=ON_DEMAND))
    until(lambda: len(taken) > 3)
    assert all(epoch == number - 1 for number, epoch in taken.items())


def test_a_bad_name_is_refused_before_anything_is_captured(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    attached = holdfast.attach(counting(spark, place), repository, pipeline="counts", every=ON_DEMAND)
    with pytest.raises(BadName):
        attached.checkpoint(savepoint="a b")
    assert attached.status().captures == 0


def test_a_savepoint_is_taken_when_another_terminal_asks_for_it(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    query = counting(spark, place)
    attached = holdfast.attach(query, repository, pipeline="counts", every="1 hour")
    attached.checkpoint()
    before = over(query)
    command = [sys.executable, "-m", "holdfast", "savepoint", "counts@now", "from-outside", "--repo", repository.url]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert attached.pipeline["from-outside"].epoch >= before


@pytest.mark.matrix
def test_an_idle_query_tells_of_the_batch_that_is_over_and_not_of_the_one_to_come(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    files_of("events")(tmp_path, 2)
    with configured(spark, {"spark.sql.streaming.noDataProgressEventInterval": "100"}):
        rows = spark.readStream.schema("at LONG").option("maxFilesPerTrigger", 1).json(str(tmp_path / "events"))
        writer = rows.groupBy("at").count().writeStream.outputMode("update").format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    live = live_query(query)
    until(lambda: over(query) == 2, "the progress of an idle query, which has the number of the next batch")
    assert committed(tmp_path / "checkpoint") == live.last_batch() == 1
    attached = holdfast.attach(query, repository, pipeline="events", every=ON_DEMAND)
    assert attached.checkpoint().epoch == 1
    files_of("events")(tmp_path, 3)
    until(lambda: live.last_batch() == 2)
    assert attached.checkpoint().epoch == 2


# ---- stop ----


@pytest.mark.matrix
def test_a_query_is_stopped_between_two_batches_every_time(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    begun: list[int] = []
    done: list[int] = []

    def each(batch: DataFrame, number: int) -> None:
        begun.append(number)
        consume(batch, number)
        done.append(number)

    # Spark 4.0 may damage RocksDB when a query starts again in the same process (SPARK-52637).
    store = "hdfs" if SPARK_VERSION == (4, 0) else "changelog"
    for attempt in range(8):
        query = counting(spark, place, each, store=store)
        attached = holdfast.attach(query, repository, pipeline="counts", every=ON_DEMAND)
        until(lambda query=query: live_query(query).last_batch() is not None)
        time.sleep(random.uniform(0, 0.5))
        stopped = attached.stop(savepoint=f"stop-{attempt}")
        assert begun == done == list(range(committed(place) + 1)), "none was cut off, and none ran twice"
        assert (stopped.epoch, stopped.interrupted) == (done[-1], False)
        assert attached.pipeline[f"stop-{attempt}"].slot == stopped.checkpoint.slot
        assert query.exception() is None
        assert not attached.status().capturing
    assert_counts(spark, stopped.checkpoint, tmp_path)


def test_a_stop_waits_for_the_batch_that_is_running(spark: SparkSession, repository: Repository, place: Path) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def each(batch: DataFrame, number: int) -> None:
        if number == 2:
            inside.set()
            go_on.wait()
        consume(batch, number)

    attached = holdfast.attach(counting(spark, place, each), repository, pipeline="counts", every=ON_DEMAND)
    assert inside.wait(60)
    with ThreadPoolExecutor(1) as threads:
        stopping = threads.submit(attached.stop)
        time.sleep(0.3)
        assert not stopping.done()
        go_on.set()
        assert (stopping.result().epoch, stopping.result().interrupted) == (2, False)
    assert committed(place) == 2


@pytest.mark.matrix
def test_a_stop_of_sparks_own_cuts_it_short(spark: SparkSession, repository: Repository, place: Path) -> None:
    inside = threading.Event()

    def each(batch: DataFrame, number: int) -> None:
        consume(batch, number)
        while number == 2:
            inside.set()
            spark.range(1).count()

    query = counting(spark, place, each)
    attached = holdfast.attach(query, repository, pipeline="counts", every=ON_DEMAND)
    assert inside.wait(60)
    with ThreadPoolExecutor(1) as threads:
        stopping = threads.submit(attached.stop)
        time.sleep(0.3)
        query.stop()
        stopped = stopping.result()
    assert (stopped.epoch, stopped.interrupted) == (1, True)


@pytest.mark.matrix
def test_a_query_with_another_sink_is_stopped_as_spark_stops_it(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    query = counting(spark, place)
    attached = holdfast.attach(query, repository, pipeline="counts", every=ON_DEMAND)
    attached.checkpoint()
    stopped = attached.stop("end")
    assert stopped.epoch == committed(place)
    assert stopped.interrupted == (place / "offsets" / str(stopped.epoch + 1)).exists()
    assert query.exception() is None
    assert_counts(spark, attached.pipeline["end"], tmp_path)


@pytest.mark.matrix
def test_a_query_between_two_triggers_is_stopped_at_once(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    query = counting(spark, place, consume, processingTime="1 hour")
    attached = holdfast.attach(query, repository, pipeline="counts", every=ON_DEMAND)
    attached.checkpoint()
    stopped = attached.stop()
    assert (stopped.epoch, stopped.interrupted, query.exception()) == (0, False, None)


def test_the_last_batch_of_an_earlier_run_is_left_as_well(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    counting(spark, place, availableNow=True).awaitTermination()
    inside = threading.Event()

    def each(batch: DataFrame, number: int) -> None:
        inside.set()
        consume(batch.limit(0), number)

    query = counting(spark, place, each, processingTime="1 hour")
    attached = holdfast.attach(query, repository, pipeline="counts", every=ON_DEMAND)
    stopped = attached.stop()
    assert stopped.epoch == committed(place)


def test_a_name_that_is_taken_leaves_the_query_running(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    query = counting(spark, place)
    attached = holdfast.attach(query, repository, pipeline="counts", every=ON_DEMAND)
    attached.checkpoint("taken")
    with pytest.raises(NameTaken):
        attached.stop("taken")
    assert query.isActive
    assert attached.status().capturing


def test_a_stop_whose_capture_failed_can_be_made_again(spark: SparkSession, tmp_path: Path, place: Path) -> None:
    store = Away(str(tmp_path / "repository"))
    query = counting(spark, place)
    attached = holdfast.attach(query, store.repository, pipeline="counts", every=ON_DEMAND)
    attached.checkpoint()
    store.down = True
    with pytest.raises(StoreUnavailable):
        attached.stop()
    assert not query.isActive
    store.down = False
    assert attached.stop("end").epoch == committed(place)


# ---- the end of the query ----


@pytest.mark.matrix
def test_the_last_batch_of_a_query_that_is_done_is_captured(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    for _ in range(3):
        query = counting(spark, place, consume, availableNow=True)
        attached = holdfast.attach(query, repository, pipeline="counts", every="1 hour")
        query.awaitTermination()
        until(lambda attached=attached: not attached.status().capturing)
        assert attached.status().last_epoch == committed(place)
        assert attached.checkpoint().epoch == committed(place), "there is nothing newer"
    assert len(epochs(repository.pipeline("counts"))) == 3


@pytest.mark.matrix
def test_the_last_batch_before_a_failure_is_captured(spark: SparkSession, repository: Repository, place: Path) -> None:
    def each(batch: DataFrame, number: int) -> None:
        if number == 3:
            raise ValueError("bad row")
        consume(batch, number)

    query = counting(spark, place, each)
    attached = holdfast.attach(query, repository, pipeline="counts", every="1 hour")
    with pytest.raises(StreamingQueryException, match="bad row"):
        query.awaitTermination()
    attached.detach()
    assert attached.status().last_epoch == 2


def test_a_batch_that_spark_found_incomplete_is_not_captured(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    def each(batch: DataFrame, number: int) -> None:
        batch.limit(1).collect() if number == 3 else consume(batch, number)

    query = counting(spark, place, each)
    attached = holdfast.attach(query, repository, pipeline="counts", every="1 batch")
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    attached.detach()
    assert committed(place) == 3, "Spark commits it before it looks"
    assert attached.status().last_epoch == 2
    assert_counts(spark, attached.pipeline["epoch:2"], tmp_path)


@pytest.mark.matrix
def test_the_last_batch_is_captured_when_somebody_else_stops_the_query(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    query = counting(spark, place)
    attached = holdfast.attach(query, repository, pipeline="counts", every="1 hour")
    attached.checkpoint()
    until(lambda: committed(place) > 4)
    query.stop()
    until(lambda: not attached.status().capturing)
    assert attached.status().last_epoch == committed(place)


def test_a_query_that_ends_before_its_first_batch_leaves_nothing(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    def each(_batch: DataFrame, _number: int) -> None:
        raise ValueError("at once")

    query = counting(spark, place, each)
    attached = holdfast.attach(query, repository, pipeline="counts", every=ON_DEMAND)
    with pytest.raises(NoWholeBatch):
        attached.checkpoint()
    with pytest.raises(NotAttached):
        attached.checkpoint()
    attached.detach()
    assert not attached.pipeline.exists()


# ---- letting go ----


def test_leaving_the_block_captures_the_last_batch_and_lets_the_query_go_on(
    spark: SparkSession, repository: Repository, place: Path
) -> None:
    query = counting(spark, place)
    with holdfast.attach(query, repository, pipeline="counts", every=ON_DEMAND) as attached:
        until(lambda: over(query) > 1)
        before = over(query)
    assert epochs(attached.pipeline)[-1] >= before
    until(lambda: over(query) > before + 2)
    assert len(epochs(attached.pipeline)) == 1
    for refused in (attached.checkpoint, attached.stop):
        with pytest.raises(NotAttached, match="let go"):
            refused()
    attached.detach()


def test_what_broke_the_block_comes_first(spark: SparkSession, tmp_path: Path, place: Path) -> None:
    store = Away(str(tmp_path / "repository"))
    query = counting(spark, place)
    attached = holdfast.attach(query, store.repository, pipeline="counts", every=ON_DEMAND)
    attached.checkpoint()
    store.down = True
    with pytest.raises(KeyError) as raised, attached:
        raise KeyError("mine")
    assert "HF-1001" in raised.value.__notes__[0]
    assert query.isActive


def test_nothing_is_left_behind_by_coming_and_going(spark: SparkSession, repository: Repository, place: Path) -> None:
    query = counting(spark, place)
    until(lambda: over(query) >= 0)
    gateway = SparkContext._gateway
    threads = gateway.jvm.java.lang.management.ManagementFactory.getThreadMXBean()

    def there() -> tuple[int, int, int]:
        gc.collect()
        listeners = len(spark.streams._jsqm.listListeners())
        return len(threading.enumerate()), listeners, len(gateway.gateway_property.pool.dict)

    def connections() -> int:
        gc.collect()
        names = [info.getThreadName() for info in threads.dumpAllThreads(False, False)]
        return sum("Thread-" in name for name in names)

    holdfast.attach(query, repository, pipeline="counts").detach()
    before, open_before = there(), connections()
    for _ in range(50):
        with holdfast.attach(query, repository, pipeline="counts", every="1 batch") as attached:
            attached.checkpoint()
    # A thread that an earlier test left may end meanwhile; none may be added.
    until(lambda: all(now <= then for now, then in zip(there(), before, strict=True)), "nothing more than before")
    until(lambda: connections() <= open_before + 2, "py4j closes the connection of each thread that has ended")
    assert query.isActive


def test_a_forked_child_is_refused(spark: SparkSession, repository: Repository, place: Path) -> None:
    attached = holdfast.attach(counting(spark, place), repository, pipeline="counts", every=ON_DEMAND)
    child = os.fork()
    if child == 0:
        try:
            attached.checkpoint()
        except ForkedProcess:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- others, and failures ----


def test_a_second_one_fences_the_first_and_the_query_goes_on(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    query = counting(spark, place)
    first = holdfast.attach(query, repository, pipeline="counts", every="1 batch")
    first.checkpoint()
    second = holdfast.attach(query, repository, pipeline="counts", every="1 batch")
    until(lambda: not first.status().capturing)
    assert first.status().fenced == "generation 1 was claimed"
    assert "HF-4001" in (first.status().last_error or "")
    for refused in (first.checkpoint, first.stop, first.detach):
        with pytest.raises(Fenced):
            refused()
    before = over(query)
    until(lambda: over(query) > before + 2)
    assert second.stop().epoch == committed(place)
    assert second.status().generation == 1
    assert_all_restore(second.pipeline.records, tmp_path)


def test_another_query_is_refused_unless_its_timeline_is_wanted(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    for name in ("one", "other"):
        counting(spark, tmp_path / name, availableNow=True).awaitTermination()
    one, other = (counting(spark, tmp_path / name) for name in ("one", "other"))
    holdfast.attach(one, repository, pipeline="counts").detach()
    with pytest.raises(OtherTimeline):
        holdfast.attach(other, repository, pipeline="counts")
    assert other.isActive
    attached = holdfast.attach(other, repository, pipeline="counts", every=ON_DEMAND, new_timeline=True)
    assert attached.checkpoint().manifest.metadata["query_id"] == other.id


class Away(Around):
    """A store that can't be reached as long as it is `down`."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url))
        self.down = False
        self.repository = holdfast.open(self, create=True)

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        if self.down:
            raise StoreUnavailable(self.url, verb, 0, "no route")
        return act()


def test_a_repository_that_is_away_never_harms_the_query(spark: SparkSession, tmp_path: Path, place: Path) -> None:
    store = Away(str(tmp_path / "repository"))
    query = counting(spark, place)
    attached = holdfast.attach(query, store.repository, pipeline="counts", every="1 batch")
    attached.checkpoint()
    store.down = True
    until(lambda: attached.status().failures > 0)
    with pytest.raises(StoreUnavailable):
        attached.checkpoint()
    before = over(query)
    until(lambda: over(query) > before + 3)
    status = attached.status()
    assert status.capturing
    assert "no route" in (status.last_error or "")
    store.down = False
    captures = status.captures
    until(lambda: attached.status().captures > captures)
    assert attached.status().last_error is None
    attached.stop()
    assert query.exception() is None
    assert_all_restore(attached.pipeline.records, tmp_path)


def test_the_last_batch_is_captured_once_the_repository_is_back(
    spark: SparkSession, tmp_path: Path, place: Path
) -> None:
    store = Away(str(tmp_path / "repository"))
    query = counting(spark, place)
    attached = holdfast.attach(query, store.repository, pipeline="counts", every="1 batch")
    attached.checkpoint()
    store.down = True
    query.stop()
    until(lambda: attached.status().failures > 0)
    assert attached.status().capturing
    store.down = False
    until(lambda: not attached.status().capturing)
    assert attached.status().last_epoch == committed(place)


# ---- what can be attached to ----


def test_a_query_in_continuous_mode_is_refused(spark: SparkSession, repository: Repository, place: Path) -> None:
    writer = spark.readStream.format("rate").load().writeStream.format("noop").option("checkpointLocation", str(place))
    query = writer.trigger(continuous="1 second").start()
    with pytest.raises(NotCapturable, match="continuous"):
        holdfast.attach(query, repository, pipeline="rate")
    assert query.isActive
    assert not repository.pipeline("rate").exists()


def test_a_query_with_a_temporary_checkpoint_is_refused(spark: SparkSession, repository: Repository) -> None:
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    with pytest.raises(CannotAttach, match="checkpointLocation"):
        holdfast.attach(query, repository, pipeline="rate")
    assert query.isActive


@pytest.mark.parametrize("wrong", [None, "query", 7])
def test_what_is_no_query_is_refused(repository: Repository, wrong: object) -> None:
    with pytest.raises(CannotAttach, match="no streaming query"):
        holdfast.attach(wrong, repository, pipeline="p")


def test_a_directory_out_of_reach_is_refused(spark: SparkSession, repository: Repository, place: Path) -> None:
    with pytest.raises(BadURL, match="HDFS"):
        holdfast.attach(counting(spark, place), repository, pipeline="p", directory="hdfs://name/checkpoint")


def test_a_spark_that_is_not_known_is_refused(
    spark: SparkSession, repository: Repository, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = counting(spark, place)
    for version in ("3.4.9", "5.0.0"):
        monkeypatch.setattr("pyspark.__version__", version)
        with pytest.raises(CannotAttach, match=version):
            holdfast.attach(query, repository, pipeline="p")


class ToFiles:
    """A row-by-row sink: each partition of each batch writes its rows into a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, partition: int, batch: int) -> bool:
        self._file = (self._folder / f"{batch}-{partition}").open("w")
        return True

    def process(self, row: object) -> None:
        self._file.write(f"{row.value}\n")  # type: ignore[attr-defined]

    def close(self, _error: object) -> None:
        self._file.close()


def rows_of(folder: Path) -> dict[int, list[int]]:
    """The rows of each batch that was written whole."""
    found: dict[int, list[int]] = {}
    for path in folder.iterdir():
        found.setdefault(int(path.name.partition("-")[0]), []).extend(int(line) for line in path.read_text().split())
    return {batch: sorted(rows) for batch, rows in found.items() if len(rows) == ROWS}


def test_a_query_with_asynchronous_progress_is_captured_at_the_batches_that_it_logs(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    def start(place: Path, output: Path) -> StreamingQuery:
        output.mkdir()
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
        writer = rows.writeStream.foreach(ToFiles(output)).option("checkpointLocation", str(place))
        writer = writer.option("asyncProgressTrackingEnabled", "true")
        return writer.option("asyncProgressTrackingCheckpointIntervalMs", "1000").start()

    def has_gaps() -> bool:
        logged = {int(path.name) for path in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")}
        return len(logged) < max(logged)

    attached = holdfast.attach(
        start(tmp_path / "checkpoint", tmp_path / "rows"), repository, pipeline="rows", every="1 batch"
    )
    until(lambda: attached.status().captures > 4 and has_gaps(), "a log with gaps, without which this tries nothing")
    stopped = attached.stop()
    taken = assert_all_restore(attached.pipeline.records, tmp_path)
    assert stopped.epoch == taken[-1] == committed(tmp_path / "checkpoint")
    for cut in random.sample(taken[1:], 3):
        place, output = tmp_path / f"from-{cut}", tmp_path / f"rows-{cut}"
        attached.pipeline[f"epoch:{cut}"].restore(str(place))
        query = start(place, output)
        until(lambda output=output: len(rows_of(output)) >= 2)
        query.stop()
        found = rows_of(output)
        assert min(found) == cut + 1
        assert found == {batch: list(range(batch * ROWS, (batch + 1) * ROWS)) for batch in found}
