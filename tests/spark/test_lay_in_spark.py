"""Spark starts from what a restore laid down, and goes on as if nothing had happened; from half of it, it does not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import holdfast
from holdfast.checkpoint import Checkpoint
from holdfast.errors import SinkLogGone
from holdfast.handles import Repository
from holdfast.spark import lay
from holdfast.spark.capture import Capturer, Taken
from holdfast.spark.lay import Laid
from holdfast.store import open_directory
from servers import KafkaServer, S3Server, kafka_conf, s3a_conf
from spark.remote import RemoteSpark, SparkFailed, remote_spark

ODD = "in put é %20 a+b"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[RemoteSpark]:
    with remote_spark(tmp_path_factory.mktemp("spark"), {**s3a_conf(s3_server), **kafka_conf()}) as remote:
        yield remote


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return holdfast.open(str(tmp_path / "repository"), create=True)


@pytest.fixture
def s3a(s3_url: str) -> str:
    return s3_url.replace("s3://", "s3a://")


def capture(
    repository: Repository, url: str | Path, options: dict[str, str] | None = None, sink: str | Path | None = None
) -> Checkpoint:
    """The last batch of a query that has ended."""
    file_sink = open_directory(str(sink), options) if sink else None
    capturer = Capturer(repository.pipeline("p").records, open_directory(str(url), options), file_sink=file_sink)
    taken = capturer.take(10**9)
    capturer.close()
    assert isinstance(taken, Taken), taken
    latest = repository.pipeline("p").latest()
    assert latest is not None
    return latest


def laid(checkpoint: Checkpoint, destination: str | Path, **more: Any) -> Laid:
    done = checkpoint.restore(destination, **more)
    assert isinstance(done, Laid)
    return done


# ---- state ----


@pytest.mark.parametrize("name", ["join-left-4", pytest.param("tws-pandas", marks=pytest.mark.soak)])
def test_operators_with_schemas_of_their_own_go_on_in_another_place(
    spark: RemoteSpark, repository: Repository, tmp_path: Path, name: str
) -> None:
    given = {"name": name, "store": "changelog-2", "inputs": tmp_path / "inputs"}
    spark("workload", **given, checkpoint=tmp_path / "ck", upto=4)
    checkpoint = capture(repository, tmp_path / "ck")
    truth = spark("workload", **given, checkpoint=tmp_path / "ck", upto=7)
    assert len(truth) >= 3
    (tmp_path / "ck").rename(tmp_path / "gone")
    for place in (laid(checkpoint, tmp_path / ODD), checkpoint.fork(tmp_path / "fork")):
        files = [path for path in Path(place.destination.removeprefix("file:")).rglob("*") if path.is_file()]
        assert not [path for path in files if b"/ck/" in path.read_bytes()], "nothing points to the old place"
        assert spark("workload", **given, checkpoint=place.destination, upto=7) == truth


def test_a_query_moves_to_an_object_store_and_within_it(
    spark: RemoteSpark, repository: Repository, tmp_path: Path, s3a: str, s3_server: S3Server
) -> None:
    given = {"name": "join-left-3", "store": "changelog-2", "inputs": tmp_path / "inputs"}
    spark("workload", **given, checkpoint=tmp_path / "ck", upto=3)
    first = laid(capture(repository, tmp_path / "ck"), f"{s3a}/one", options=s3_server.options)
    on_disk = spark("workload", **given, checkpoint=tmp_path / "ck", upto=4)
    assert spark("workload", **given, checkpoint=first.destination, upto=4) == on_disk
    second = laid(capture(repository, f"{s3a}/one", s3_server.options), f"{s3a}/two b", options=s3_server.options)
    truth = spark("workload", **given, checkpoint=tmp_path / "ck", upto=5)
    assert spark("workload", **given, checkpoint=second.destination, upto=5) == truth


def test_spark_does_not_start_from_a_restore_that_was_cut_off(
    spark: RemoteSpark,
    repository: Repository,
    tmp_path: Path,
    s3a: str,
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"name": "by-key", "store": "changelog", "inputs": tmp_path / "inputs"}
    spark("workload", **given, checkpoint=tmp_path / "ck", upto=3)
    checkpoint = capture(repository, tmp_path / "ck")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lay.StoreFolder, "lift", die)
        with pytest.raises(KeyboardInterrupt):
            laid(checkpoint, s3a, options=s3_server.options)
    with pytest.raises(SparkFailed, match=lay.UNFINISHED):
        spark("workload", **given, checkpoint=s3a, upto=5)
    truth = spark("workload", **given, checkpoint=tmp_path / "ck", upto=5)
    place = laid(checkpoint, s3a, options=s3_server.options)
    assert spark("workload", **given, checkpoint=place.destination, upto=5) == truth


def test_input_that_has_moved_is_known_again(spark: RemoteSpark, repository: Repository, tmp_path: Path) -> None:
    given = {"name": "window", "store": "changelog"}
    inputs, moved = tmp_path / ODD, tmp_path / f"moved {ODD} ü"
    spark("workload", **given, inputs=inputs, checkpoint=tmp_path / "ck", upto=11)
    checkpoint = capture(repository, tmp_path / "ck")
    shutil.copytree(tmp_path / "ck", tmp_path / "truth")
    truth = spark("workload", **given, inputs=inputs, checkpoint=tmp_path / "truth", upto=14)
    assert len(truth) >= 3
    for file in (inputs / "events").iterdir():
        if int(file.stem) >= 11:
            file.unlink()
    shutil.move(inputs, moved)
    place = laid(checkpoint, tmp_path / "new", map_paths={str(inputs): str(moved)})
    assert spark("workload", **given, inputs=moved, checkpoint=place.destination, upto=14) == truth


# ---- the file sink ----


def feed(folder: Path, first: int, end: int) -> None:
    """Files with three numbers each."""
    folder.mkdir(exist_ok=True)
    for number in range(first, end):
        file = folder / f"{number:03}.json"
        file.write_text("".join(json.dumps({"n": number * 3 + n}) + "\n" for n in range(3)))
        os.utime(file, (1_700_000_000 + number,) * 2)


@pytest.fixture(params=["disk", "s3"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """Where the sink is, and the options to get there."""
    if request.param == "disk":
        return f"{tmp_path}/out é", {}
    return request.getfixturevalue("s3a") + "/out é", request.getfixturevalue("s3_server").options


def test_after_a_restore_to_an_older_batch_a_file_sink_holds_every_row_once(
    spark: RemoteSpark, repository: Repository, tmp_path: Path, output: tuple[str, dict[str, str]]
) -> None:
    url, options = output
    given = {"source": tmp_path / "in", "output": url}
    feed(tmp_path / "in", 0, 6)
    spark("file_sink", **given, checkpoint=tmp_path / "ck")
    checkpoint = capture(repository, tmp_path / "ck")
    feed(tmp_path / "in", 6, 11)
    spark("file_sink", **given, checkpoint=tmp_path / "ck")
    assert spark("read_sink", output=url) == list(range(33))
    feed(tmp_path / "in", 11, 13)
    place = laid(checkpoint, tmp_path / "new", file_sink=url, sink_options=options, apply_sink=True)
    assert place.sink_kept is not None
    assert spark("read_sink", output=url) == list(range(18)), "the sink is back at the checkpoint"
    spark("file_sink", **given, checkpoint=place.destination, per_batch=2)
    assert spark("read_sink", output=url) == list(range(39)), "every row is there, and once"
    feed(tmp_path / "in", 13, 20)
    spark("file_sink", **given, checkpoint=place.destination)
    assert spark("read_sink", output=url) == list(range(60)), "and after the log was joined again"


def test_without_it_rows_are_lost(spark: RemoteSpark, repository: Repository, tmp_path: Path) -> None:
    given = {"source": tmp_path / "in", "output": tmp_path / "out"}
    feed(tmp_path / "in", 0, 3)
    spark("file_sink", **given, checkpoint=tmp_path / "ck")
    checkpoint = capture(repository, tmp_path / "ck")
    feed(tmp_path / "in", 3, 6)
    spark("file_sink", **given, checkpoint=tmp_path / "ck")
    feed(tmp_path / "in", 6, 8)
    place = laid(checkpoint, tmp_path / "new")
    spark("file_sink", **given, checkpoint=place.destination, per_batch=2)
    assert spark("read_sink", output=tmp_path / "out") == list(range(18)), "those of the last two files are not there"


def test_a_log_that_spark_has_joined_and_dropped_is_brought_back_from_the_capture(
    spark: RemoteSpark, repository: Repository, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    given = {"source": tmp_path / "in", "output": out, "keep": 2}
    feed(tmp_path / "in", 0, 6)
    spark("file_sink", **given, checkpoint=tmp_path / "ck")
    kept = capture(repository, tmp_path / "ck", sink=out)
    plain = capture(holdfast.open("memory://", create=True), tmp_path / "ck")
    feed(tmp_path / "in", 6, 14)
    spark("file_sink", **given, checkpoint=tmp_path / "ck")
    assert not (out / "_spark_metadata" / "5").exists(), "Spark has dropped it"
    with pytest.raises(SinkLogGone):
        laid(plain, tmp_path / "new", file_sink=str(out), apply_sink=True)
    assert not (tmp_path / "new").exists()
    place = laid(kept, tmp_path / "new", file_sink=str(out), apply_sink=True)
    spark("file_sink", **given, checkpoint=place.destination, per_batch=3)
    assert spark("read_sink", output=out) == list(range(42))


# ---- Kafka ----


def test_a_poison_record_is_skipped_with_the_state_kept(
    spark: RemoteSpark, repository: Repository, tmp_path: Path, kafka_server: KafkaServer
) -> None:
    kafka_server.make_topic("poisoned")
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap})
    for value in ("a", "b", "a", "poison", "a", "b"):
        producer.produce("poisoned", value)
    assert producer.flush(30) == 0
    given = {"bootstrap": kafka_server.bootstrap, "topic": "poisoned", "fail_on": "poison"}
    with pytest.raises(SparkFailed, match="poison came"):
        spark("kafka_counts", **given, checkpoint=tmp_path / "ck")
    checkpoint = capture(repository, tmp_path / "ck")
    assert checkpoint.epoch == 2
    with pytest.raises(SparkFailed, match="poison came"):
        spark("kafka_counts", **given, checkpoint=laid(checkpoint, tmp_path / "again").destination)
    place = laid(checkpoint, tmp_path / "mended", set_offsets=["0:poisoned:0=4"])
    assert place.edits == ("source 0, poisoned-0: 3 -> 4 (skips 1)",)
    assert spark("kafka_counts", **given, checkpoint=place.destination) == {"a": 3, "b": 2}
