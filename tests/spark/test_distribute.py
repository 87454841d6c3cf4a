"""Captures and restores whose bytes Spark's executors move: the same bytes, and none of them through the driver."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import holdfast
from holdfast.errors import CannotAttach, DamagedArtifact, ExecutorsFailed
from holdfast.handles import Repository, StoredPipeline
from holdfast.laying import Folder
from holdfast.repository.uploads import Limits
from holdfast.spark.capture import LIMITS, Capturer, Taken
from holdfast.spark.distribute import Layer, Sender, SendTask, SharedFolder, Spare, sender_for
from holdfast.spark.executors import Executors, share_out
from holdfast.spark.lay import lay_down
from holdfast.store import Address
from holdfast.store.directory import FileStat
from holdfast.store.local_directory import LocalDirectory
from servers import S3Server, SparkCluster, s3a_conf
from spark.attaching import counting, until
from spark.directories import ROCKSDB, MadeDirectory

TESTS = Path(__file__).resolve().parents[1]


class Here(Executors):
    """The same tasks, run where we are: for what needs no cluster."""

    def __init__(self, cores: int = 6) -> None:
        super().__init__(None)
        object.__setattr__(self, "_cores", cores)

    @property
    def cores(self) -> int:
        return self.__dict__["_cores"]  # type: ignore[no-any-return]

    def run(self, task: Callable[[Iterable[Any]], Iterator[bytes]], shares: Sequence[Any]) -> list[bytes]:
        return [answer for share in shares for answer in task([share])]


@pytest.fixture
def directory(tmp_path: Path) -> MadeDirectory:
    made = MadeDirectory(tmp_path / "ck", provider=ROCKSDB, partitions=3, stores=("a", "b"))
    for _ in range(4):
        made.batch()
    made.snapshot(3)
    made.batch()
    return made


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return holdfast.open(str(tmp_path / "repository"), create=True)


@pytest.fixture
def pipeline(repository: Repository) -> StoredPipeline:
    return repository.pipeline("orders")


def sender(directory: MadeDirectory, repository: Repository, executors: Executors, limits: Limits = LIMITS) -> Sender:
    return Sender(executors, Address(str(directory.root)), repository.address, always=True, limits=limits)


def captured(pipeline: StoredPipeline, directory: MadeDirectory, mover: Sender | None = None) -> holdfast.Checkpoint:
    capturer = Capturer(pipeline.records, LocalDirectory(directory.root), mover=mover)
    taken = capturer.take(known=10)
    capturer.close()
    assert isinstance(taken, Taken), taken
    return pipeline.checkpoints()[-1]


def files_below(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


# ---- shares ----


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 1000), max_size=40), st.integers(0, 9))
def test_every_file_is_in_one_share_and_no_share_is_much_heavier(sizes: dict[str, int], shares: int) -> None:
    found = share_out(sizes, shares)
    assert sorted(name for share in found for name in share) == sorted(sizes)
    assert len(found) <= max(1, shares)
    weights = [sum(sizes[name] for name in share) for share in found]
    assert max(weights) - min(weights) <= max(sizes.values(), default=0)


# ---- captures ----


@pytest.mark.parametrize("limits", [LIMITS, Limits(inline=0, single=100, pack=300)])
def test_what_several_processes_sent_is_one_checkpoint_that_verifies_and_restores(
    directory: MadeDirectory, repository: Repository, pipeline: StoredPipeline, tmp_path: Path, limits: Limits
) -> None:
    mover = sender(directory, repository, Here(), limits)
    capturer = Capturer(pipeline.records, LocalDirectory(directory.root), mover=mover, limits=limits)
    assert isinstance(capturer.take(known=10), Taken)
    directory.batch()
    assert isinstance(capturer.take(known=10), Taken)
    capturer.close()
    for checkpoint in pipeline.checkpoints():
        assert not checkpoint.verify().faults
        assert not [f for f in checkpoint.manifest.validate() if f.severity == "error"]
    assert pipeline.checkpoints()[0].head.bytes_shared == 0
    laid = lay_down(pipeline.records, pipeline.checkpoints()[-1].manifest, str(tmp_path / "restored"))
    for name in pipeline.checkpoints()[-1].manifest.files:
        if name != "metadata":
            assert (tmp_path / "restored" / name).read_bytes() == (directory.root / name).read_bytes()
    assert laid.epoch == 5


def test_the_query_keeps_half_of_the_cores() -> None:
    class Counting(Here):
        tasks = 0

        def run(self, task: Callable[[Iterable[Any]], Iterator[bytes]], shares: Sequence[Any]) -> list[bytes]:
            Counting.tasks = len(shares)
            return []

    class NoUpload:
        def shared_upload(self) -> tuple[None, str]:
            return None, ""

    executors, here = Counting(8), Address("/nowhere")
    files = {str(number): FileStat(1, "", 0) for number in range(100)}
    Sender(executors, here, here).send(NoUpload(), files)  # type: ignore[arg-type]
    assert executors.tasks == 4


def test_a_file_that_goes_while_it_is_sent_leads_to_another_attempt_and_leaves_no_bytes(
    directory: MadeDirectory, repository: Repository, pipeline: StoredPipeline
) -> None:
    class Purging(Here):
        """The first job meets with a clean-up of Spark's."""

        def run(self, task: Callable[[Iterable[Any]], Iterator[bytes]], shares: Sequence[Any]) -> list[bytes]:
            victim = directory.root / shares[0][-1]
            if self.__dict__.pop("_first", True):
                object.__setattr__(self, "_first", False)
                kept = victim.read_bytes()
                victim.unlink()
                answers = super().run(task, shares)
                victim.write_bytes(kept)
                return answers
            return super().run(task, shares)

    checkpoint = captured(pipeline, directory, sender(directory, repository, Purging()))
    assert not checkpoint.verify().faults
    assert not pipeline.sweep(dry_run=True).objects


def test_a_task_tells_what_is_gone(directory: MadeDirectory, repository: Repository, pipeline: StoredPipeline) -> None:
    folder = "pipelines/orders/data/0000000000-00000000000000000000000000000000/"
    task = SendTask(Address(str(directory.root)), repository.address, pipeline.records.keys, folder, LIMITS)
    sent = task.send(["metadata", "state/0/0/a/99.changelog", "offsets/1"], 0)
    assert (sent.gone, list(sent.files)) == ("state/0/0/a/99.changelog", ["metadata"])


def test_a_job_is_chosen_by_size_or_by_word_only() -> None:
    here = Address("/nowhere")
    small, large = {"a": FileStat(10, "", 0)}, {"a": FileStat(10**9, "", 0)}
    by_size, by_word = Sender(Here(), here, here, proven=True), Sender(Here(), here, here, always=True)
    assert [by_size.is_worth(small), by_size.is_worth(large), by_word.is_worth(small)] == [False, True, True]


def test_by_size_the_driver_does_it_where_the_executors_can_not(tmp_path: Path, repository: Repository) -> None:
    asked = []

    class Counting(Here):
        def run(self, task: Callable[[Iterable[Any]], Iterator[bytes]], shares: Sequence[Any]) -> list[bytes]:
            asked.append(task)
            return super().run(task, shares)

    mover = Sender(Counting(), Address(str(tmp_path / "not-there")), repository.address)
    large = {"a": FileStat(10**9, "", 0)}
    assert [mover.is_worth(large), mover.is_worth(large)] == [False, False]
    assert "do not see" in (mover.why_not or "")
    assert len(asked) == 1, "they are tried out once"


class Context:
    def __init__(self, master: str) -> None:
        self.master = master


CLOUD = Address("s3://bucket/place")


@pytest.mark.parametrize(
    ("master", "directory", "distribute", "chosen"),
    [
        ("spark://host:7077", CLOUD, None, True),
        ("yarn", CLOUD, None, True),
        ("local-cluster[2,1,1024]", CLOUD, None, True),
        ("local[4]", CLOUD, None, False),
        ("spark://host:7077", Address("file:/somewhere"), None, False),
        ("spark://host:7077", CLOUD, False, False),
    ],
)
def test_by_size_the_executors_are_taken_only_where_they_are_others_and_reach_the_places(
    master: str, directory: Address, distribute: bool | None, chosen: bool
) -> None:
    assert (sender_for(Context(master), directory, CLOUD, distribute) is not None) is chosen


def test_executors_that_are_asked_for_and_can_not_do_it_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    here, repository = Address(str(tmp_path)), holdfast.open(str(tmp_path / "repository"), create=True)
    with pytest.raises(CannotAttach, match="Spark Connect"):
        sender_for(None, here, repository.address, True)
    with pytest.raises(CannotAttach, match="memory"):
        sender_for(spark.sparkContext, here, Address("memory://"), True)
    with pytest.raises(CannotAttach, match="do not see"):
        sender_for(spark.sparkContext, here, repository.address, True)


def test_options_of_an_address_are_not_shown() -> None:
    assert "hush" not in repr(Address("s3://bucket", {"secret_access_key": "hush"}))


# ---- restores ----


def test_what_the_executors_lay_down_is_what_one_process_would(
    directory: MadeDirectory, pipeline: StoredPipeline, tmp_path: Path
) -> None:
    checkpoint = captured(pipeline, directory)
    told: list[tuple[str, int, int]] = []
    layer = Layer(Here(), pipeline.repository.address)
    one = lay_down(pipeline.records, checkpoint.manifest, str(tmp_path / "one"))
    other = lay_down(
        pipeline.records,
        checkpoint.manifest,
        str(tmp_path / "other"),
        layer=layer,
        progress=lambda *said: told.append(said),
    )
    first, second = files_below(tmp_path / "one"), files_below(tmp_path / "other")
    assert {**first, "_holdfast/owner.json": b""} == {**second, "_holdfast/owner.json": b""}
    assert (one.files, one.bytes) == (other.files, other.bytes)
    assert told[0][1:] == (0, told[-1][1])
    assert {path.name for path in tmp_path.iterdir()} == {"ck", "one", "other", "repository"}, "nothing is left"


def test_damage_that_an_executor_finds_is_told_and_leaves_nothing(
    directory: MadeDirectory, pipeline: StoredPipeline, tmp_path: Path
) -> None:
    checkpoint = captured(pipeline, directory)
    [pack] = (tmp_path / "repository").rglob("pack-*")
    data = bytearray(pack.read_bytes())
    data[len(data) // 3] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)
    layer = Layer(Here(), pipeline.repository.address)
    with pytest.raises(DamagedArtifact):
        lay_down(pipeline.records, checkpoint.manifest, str(tmp_path / "restored"), layer=layer)
    assert {path.name for path in tmp_path.iterdir()} == {"ck", "repository"}


def test_an_attempt_that_was_given_up_can_not_touch_what_was_restored(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "restored")
    with folder.opened(), folder.beside() as spare:
        zombie = SharedFolder(Spare(str(folder.partial), str(spare)))
        zombie.write("state/0/1.delta", b"whole")

        def chunks() -> Iterator[bytes]:
            yield b"cut"
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            zombie.write_stream("state/0/1.delta", chunks())
    assert files_below(tmp_path) == {"restored/state/0/1.delta": b"whole"}
    for name in ("state/0/1.delta", "state/1/1.delta"):
        with pytest.raises(FileNotFoundError):
            zombie.write(name, b"too late")
    assert files_below(tmp_path) == {"restored/state/0/1.delta": b"whole"}


def test_a_session_without_a_context_is_refused(
    directory: MadeDirectory, pipeline: StoredPipeline, tmp_path: Path
) -> None:
    checkpoint = captured(pipeline, directory)
    with pytest.raises(ExecutorsFailed, match="no SparkContext"):
        checkpoint.restore(tmp_path / "restored", session=object())
    assert not (tmp_path / "restored").exists()


# ---- in a real Spark ----


def test_a_spark_job_sends_and_lays_down_the_files_of_a_checkpoint(
    spark: SparkSession, directory: MadeDirectory, repository: Repository, pipeline: StoredPipeline, tmp_path: Path
) -> None:
    executors = Executors.of(spark)
    mover = sender_for(spark.sparkContext, Address(f"file:{directory.root}"), repository.address, True)
    checkpoint = captured(pipeline, directory, mover)
    assert not checkpoint.verify().faults
    assert not executors.are_elsewhere
    checkpoint.restore(tmp_path / "restored", session=spark)
    for name in checkpoint.manifest.files:
        if name != "metadata":
            assert (tmp_path / "restored" / name).read_bytes() == (directory.root / name).read_bytes()


def test_a_job_that_fails_is_told_by_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    def fail(shares: Iterable[int]) -> Iterator[bytes]:
        raise OSError("no room left for this")
        yield b""

    with pytest.raises(ExecutorsFailed, match=r": OSError: no room left for this \[HF-"):
        Executors.of(spark).run(fail, [1])


def test_an_attached_query_is_captured_by_the_executors(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    query = counting(spark, tmp_path / "checkpoint")
    try:
        attached = holdfast.attach(query, repository, pipeline="counts", every="1 batch", distribute=True)
        until(lambda: attached.status().captures >= 3)
        status = attached.status()
        assert (status.failures, status.movers) == (0, "the executors")
        attached.stop()
    finally:
        query.stop()
    for checkpoint in attached.pipeline.checkpoints():
        assert not checkpoint.verify().faults


# ---- on a cluster ----


def test_two_workers_capture_and_restore_between_object_stores(
    spark_cluster: SparkCluster, s3_server: S3Server, s3_url: str, tmp_path: Path
) -> None:
    """The repository is encrypted, and only the driver was given its key: neither it nor what it opens is logged."""
    key, log = holdfast.Key.generate(), tmp_path / "events"
    log.mkdir()
    logging = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(log), "spark.eventLog.compress": "false"}
    given = {
        "master": spark_cluster.master,
        "conf": {**spark_cluster.conf, **s3a_conf(s3_server), **logging},
        "place": s3_url,
        "options": dict(s3_server.options),
    }
    done = subprocess.run(
        [sys.executable, "-m", "spark.distribute_program", json.dumps(given)],
        env={
            **os.environ,
            "HOLDFAST_KEY": key.text(),
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["movers"], told["failures"]) == ("the executors", 0)
    assert told["counted_on"]
    # What had to be read to find the cut, such as its logs, the driver has in hand already and sends itself.
    assert told["objects_by_the_driver"] <= told["captures"]
    repository = holdfast.open(f"{s3_url}-repository", options=s3_server.options, key=key)
    assert repository.pipeline("counts").check(read_percent=100).damaged == []
    logged = b"".join(path.read_bytes() for path in log.rglob("*") if path.is_file())
    assert b"SparkListenerJobEnd" in logged
    own = repository.address.ring.keys[1]  # type: ignore[attr-defined]
    for secret in (key.text().partition(":")[2].encode(), own.hex().encode(), base64.b64encode(own)):
        assert secret not in logged + done.stderr.encode() + done.stdout.encode()
