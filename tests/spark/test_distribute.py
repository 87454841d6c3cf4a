"""Captures whose bytes Spark's executors move: the same checkpoint, and none of its bytes through the driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import holdfast
from holdfast.draft import Draft
from holdfast.errors import ObjectMissing
from holdfast.repository.uploads import Limits
from holdfast.spark.capture import LIMITS, Capturer, Taken
from holdfast.spark.distribute import Address, Executors, SendTask, share_out
from holdfast.spark.lay import lay_down
from holdfast.store.directory import FileStat
from holdfast.store.local_directory import LocalDirectory
from spark.directories import ROCKSDB, MadeDirectory


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 1000), max_size=40), st.integers(1, 9))
def test_every_file_is_in_one_share_and_no_share_is_much_heavier(sizes: dict[str, int], groups: int) -> None:
    files = {name: FileStat(size, "", 0) for name, size in sizes.items()}
    shares = share_out(files, groups)
    assert sorted(name for share in shares for name in share) == sorted(files)
    assert len(shares) <= groups
    weights = [sum(sizes[name] for name in share) for share in shares]
    assert max(weights) - min(weights) <= max(sizes.values(), default=0)


def made(root: Path) -> MadeDirectory:
    directory = MadeDirectory(root / "ck", provider=ROCKSDB, partitions=3, stores=("a", "b"))
    for _ in range(4):
        directory.batch()
    directory.snapshot(3)
    directory.batch()
    return directory


class InThisProcess(Executors):
    """The same task, run where we are: for what needs no cluster."""

    def send(self, draft: Draft, files: dict[str, FileStat]) -> dict[str, FileStat]:  # type: ignore[override]
        task = SendTask(self.directory, self.repository, *draft.shared_upload(), self.limits)
        for number, share in enumerate(share_out(files, 3)):
            sent = task.send(share, (number + 1) * 1_000_000)
            if sent.gone:
                raise ObjectMissing(self.directory.url, sent.gone)
            draft.adopt_files(sent.files, sent.objects)
        return dict(files)


@pytest.mark.parametrize("limits", [LIMITS, Limits(inline=0, single=100, pack=300)])
def test_what_several_processes_sent_is_one_checkpoint_that_verifies_and_restores(
    tmp_path: Path, limits: Limits
) -> None:
    directory = made(tmp_path)
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    pipeline = repository.pipeline("orders")
    mover = InThisProcess(None, Address(str(directory.root)), Address(repository.url), limits, always=True)
    capturer = Capturer(pipeline.records, LocalDirectory(directory.root), mover=mover, limits=limits)
    taken = capturer.take(known=10)
    assert isinstance(taken, Taken)
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


def test_a_file_that_goes_while_it_is_sent_leads_to_another_attempt(tmp_path: Path) -> None:
    directory = made(tmp_path)
    task = SendTask(
        Address(str(directory.root)),
        Address(str(tmp_path / "store")),
        holdfast.open(str(tmp_path / "r"), create=True).pipeline("p").records.keys,
        "pipelines/p/data/0000000000-00000000000000000000000000000000/",
        LIMITS,
    )
    assert task.send(["state/0/0/a/99.changelog"], 0).gone == "state/0/0/a/99.changelog"


def test_a_job_is_chosen_by_size_or_by_word_only() -> None:
    here = Address("/nowhere")
    small, large = {"a": FileStat(10, "", 0)}, {"a": FileStat(10**9, "", 0)}
    by_size, by_word = Executors(None, here, here, LIMITS), Executors(None, here, here, LIMITS, always=True)
    assert [by_size.is_worth(small), by_size.is_worth(large), by_word.is_worth(small)] == [False, True, True]


def test_options_of_an_address_are_not_shown() -> None:
    assert "hush" not in repr(Address("s3://bucket", {"secret_access_key": "hush"}))


def test_a_spark_job_sends_the_files_of_a_capture(spark: SparkSession, tmp_path: Path) -> None:
    directory = made(tmp_path)
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    pipeline = repository.pipeline("orders")
    mover = Executors(spark, Address(str(directory.root)), Address(repository.url), LIMITS, always=True)
    capturer = Capturer(pipeline.records, LocalDirectory(directory.root), mover=mover)
    assert isinstance(capturer.take(known=10), Taken)
    capturer.close()
    [checkpoint] = pipeline.checkpoints()
    assert not checkpoint.verify().faults
    assert len(checkpoint.manifest.objects) > 1, "each task has made an object of its own"
