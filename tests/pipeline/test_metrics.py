"""What a run tells: scraped as Prometheus does it, and heard by a listener."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.error import URLError

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import holdfast
from holdfast.claim import Begin, Reason, take_over
from holdfast.epochs import NOTHING, Holder
from holdfast.errors import BadValue, Fenced
from holdfast.events import CaptureFailed, CheckpointTaken, EpochCommitted, EpochFailed, Event, TakenOver, teller
from holdfast.store import RetryPolicy
from pipeline.place import NOW, Place
from pipeline.proof import CONF, Died, die_at
from spark.workloads import configured

SECONDS = 120


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


@pytest.fixture
def port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def scrape(port: int) -> dict[str, float]:
    """The figures that have no label but the pipeline's."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels["pipeline"] for sample in samples} == {"sums"}
    return {sample.name: sample.value for sample in samples if sample.labels.keys() == {"pipeline"}}


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Told:
    """A listener that notes what it hears, and when it last heard of each kind."""

    def __init__(self) -> None:
        self.commits: list[EpochCommitted] = []
        self.checkpoints: list[CheckpointTaken] = []
        self.last: dict[type[Event], float] = {}

    def __call__(self, event: Event) -> None:
        self.last[type(event)] = time.monotonic()
        if isinstance(event, EpochCommitted):
            self.commits.append(event)
        elif isinstance(event, CheckpointTaken):
            self.checkpoints.append(event)


def test_what_is_scraped_are_the_figures_of_the_run_and_the_port_is_free_when_it_ends(place: Place, port: int) -> None:
    place.inputs(6)
    pipeline, told, began = place.pipeline(), Told(), time.monotonic()
    start = partial(pipeline.start, place.repository, checkpoint_dir=place.home, metrics_port=port)
    with configured(place.spark, CONF):
        with pytest.raises(BadValue, match="no kind of change"):
            start(accept=["fliter"])
        with start(listener=told) as run:
            run.query.processAllAvailable()
            run.checkpoint()
            asked = time.monotonic()
            found = scrape(port)
            answered = time.monotonic()
            with pytest.raises(BadValue, match=str(port)):
                run.metrics.serve(port)
        with pytest.raises(URLError):
            scrape(port)
        place.inputs(7)
        with start() as again:
            again.query.processAllAvailable()
            assert scrape(port)["holdfast_last_epoch"] == 6
    assert found["holdfast_last_epoch"] == 5
    assert found["holdfast_epochs_total"] == found["holdfast_epoch_seconds_count"] == len(told.commits) == 6
    assert found["holdfast_rows_total"] == sum(event.rows for event in told.commits) > 0
    assert found["holdfast_staged_bytes_total"] == sum(event.bytes for event in told.commits) > 0
    assert found["holdfast_epoch_seconds_sum"] == pytest.approx(sum(event.seconds for event in told.commits))
    taken = told.checkpoints[: int(found["holdfast_checkpoints_total"])]
    assert found["holdfast_capture_seconds_count"] == len(taken) > 0
    assert found["holdfast_capture_seconds_sum"] == pytest.approx(sum(event.seconds for event in taken))
    assert found["holdfast_captured_bytes_total"] == sum(event.bytes_read for event in taken) > 0
    assert found["holdfast_checkpoint_bytes"] == taken[-1].bytes
    for kind, name in ((EpochCommitted, "commit"), (CheckpointTaken, "checkpoint")):
        assert asked - told.last[kind] <= found[f"holdfast_last_{name}_age_seconds"] < answered - began
    for name in ("epoch_failures", "capture_failures", "fenced"):
        assert found[f"holdfast_{name}_total"] == 0


class Heard:
    """A listener that looks at a figure when it hears of something."""

    def __init__(self, kind: type[Event], figure: str, port: int) -> None:
        self.events: list[Event] = []
        self.figures: list[float] = []
        self._kind, self._figure, self._port = kind, f"holdfast_{figure}_total", port

    def __call__(self, event: Event) -> None:
        if isinstance(event, self._kind):
            self.figures.append(scrape(self._port)[self._figure])
            self.events.append(event)


def test_an_epoch_that_fails_is_told_and_counted(place: Place, port: int) -> None:
    place.inputs(2)
    pipeline, heard = place.pipeline(), Heard(EpochFailed, "epoch_failures", port)
    pipeline._reach = die_at("prepared", 2)
    with configured(place.spark, CONF):
        run = pipeline.start(
            place.repository, checkpoint_dir=place.home, trigger=NOW, listener=heard, metrics_port=port
        )
        with pytest.raises(PySparkException):
            run.await_termination()
    [failed] = heard.events
    assert isinstance(failed, EpochFailed)
    assert (failed.epoch, type(failed.error), heard.figures) == (1, Died, [1])


def test_a_capture_that_fails_is_told_and_counted_and_tried_again(place: Place, port: int) -> None:
    place.inputs(1)
    heard = Heard(CaptureFailed, "capture_failures", port)
    repository = holdfast.open(str(place.root / "repository"), retry=RetryPolicy(budget_seconds=0.1))
    repository.pipeline("sums").records.ensure_identity()
    data = place.root / "repository/pipelines/sums/data"
    data.write_text("in the way of a folder")
    with configured(place.spark, CONF):
        start = place.pipeline().start
        with start(repository, checkpoint_dir=place.home, every="1 batch", listener=heard, metrics_port=port) as run:
            until(lambda: len(heard.events) > 1)
            data.unlink()
            run.checkpoint()
            assert scrape(port)["holdfast_checkpoints_total"] == 1
    assert heard.figures == [*range(1, len(heard.figures) + 1)]
    assert run.status().captures.failures == len(heard.figures)


def test_a_take_over_is_told_and_counted(place: Place, port: int) -> None:
    place.inputs(2)
    heard = Heard(TakenOver, "fenced", port)
    with configured(place.spark, CONF):
        start = place.pipeline().start
        run = start(place.repository, checkpoint_dir=place.home, every="1 batch", listener=heard, metrics_port=port)
        run.query.processAllAvailable()
        checkpoint = run.checkpoint()
        records = run.pipeline.records
        generation = take_over(records, Reason("start"), lambda: Begin(checkpoint.slot, checkpoint.epoch))
        for sink in place.sinks().values():
            sink.fence(Holder(records.identity().pipeline_id, generation.number, generation.token), NOTHING)
        place.inputs(4)
        with pytest.raises(Fenced):
            run.await_termination()
    assert heard.figures == [1]


def test_a_take_over_that_is_found_twice_is_told_once() -> None:
    """By the epoch that a sink refuses, and by the capture of the last one before it."""
    heard: list[Event] = []
    tell = teller(heard.append)
    for by in ("generation 1", "generation 2"):
        tell(TakenOver(by))
    assert heard == [TakenOver("generation 1")]
