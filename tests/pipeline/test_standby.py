"""A pipeline taken over from a copy while its own store is dead: its sinks end with the truth, and who ran it before
is fenced in every one of them, and says so.

`make test` has a sample of each, `make soak` more sinks, and the paused driver at every step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.errors import ActivatedElsewhere, Fenced, SinksAhead
from holdfast.standby import Standby
from holdfast.store import open_store
from pipeline.proof import Proof, Prove, Truth, steps_of
from pipeline.targets import name_of, open_sink
from servers import S3Server, seaweedfs

SECONDS = 240
CROWDS = [("delta", "sqlite", "parquet"), ("iceberg", "duckdb upsert"), ("postgres", "delta upsert")]


class Killable:
    """A server that can be killed at any time."""

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self.server: S3Server = self._stack.enter_context(seaweedfs(folder))
        # It makes a bucket with the first object in it.
        open_store(self.server.url(), self.server.options).put("made", b"")

    def kill(self) -> None:
        self._stack.close()


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[Killable]:
    server = Killable(tmp_path / "seaweedfs")
    yield server
    server.kill()


class Pair:
    """A pipeline whose repository lies in a server that will be killed, and a copy of that on this machine."""

    def __init__(self, proof: Proof, killable: Killable) -> None:
        self.proof = proof
        self.killable = killable
        proof.keep_in(killable.server.url("primary"), killable.server.options)
        self.primary = proof.repository
        self.copy = holdfast.open(str(proof.root / "copy"), create=True)

    def follow(self) -> None:
        Standby(lambda: (self.primary, self.copy)).once()

    def take_over(self, spark: SparkSession, **more: object) -> None:
        """Run the pipeline from the copy to the end of what there is."""
        self.proof.repository = self.copy
        self.proof.run(self.proof.pipeline(spark), home=self.proof.root / "home-of-the-copy", **more)

    def epochs(self) -> list[int]:
        """Up to where each sink holds the rows."""
        markers = [open_sink(target).look() for target in self.proof.targets.values()]
        return [marker.at.epoch if marker else -1 for marker in markers]

    def pause_and_take_over(self, spark: SparkSession, truth: Truth, step: str) -> None:
        """The old driver sleeps at a step, its store dies, the copy is activated, and the old driver goes on."""
        self.proof.inputs(6)
        with self.proof.asleep(step, 3) as wake:
            self.follow()
            self.killable.kill()
            self.take_over(spark, activate=True)
            assert self.proof.differing(truth(6)) == {}, step
            assert wake() == Fenced.exit_code, step
        assert self.proof.differing(truth(6)) == {}, step


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def has_checkpoint(pair: Pair, epoch: int) -> bool:
    stored = pair.primary.pipeline("sums")
    latest = stored.latest() if stored.exists() else None
    return latest is not None and latest.epoch >= epoch


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kinds",
    [("sqlite", "parquet"), pytest.param(("delta", "sqlite", "parquet"), marks=pytest.mark.soak)],
    ids=" + ".join,
)
def test_with_the_store_killed_and_the_old_driver_alive_the_sinks_end_with_the_truth(
    spark: SparkSession, prove: Prove, truth: Truth, killable: Killable, kinds: tuple[str, ...]
) -> None:
    proof = prove(*kinds)
    pair = Pair(proof, killable)
    proof.inputs(3)
    with proof.on_and_on() as ended:
        until(lambda: has_checkpoint(pair, 1))
        pair.follow()
        killable.kill()
        proof.inputs(5)
        until(lambda: min(pair.epochs()) >= 4)
        pair.take_over(spark, activate=True)
        assert proof.differing(truth(5)) == {}
        proof.inputs(6)
        assert ended() == Fenced.exit_code
    assert "Fenced" in (proof.root / "log").read_text()
    pair.take_over(spark)
    assert proof.differing(truth(6)) == {}


def test_a_copy_that_was_activated_loses_the_sinks_again_to_an_original_that_is_told_to_take_them(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("sqlite")
    original, copy = proof.repository, holdfast.open(str(proof.root / "copy"), create=True)
    proof.inputs(3)
    proof.run(proof.pipeline(spark))
    original.copy_to(copy, "sums")
    proof.inputs(5)
    proof.repository = copy
    proof.run(proof.pipeline(spark), home=proof.root / "home-of-the-copy", activate=True)
    proof.repository = original
    planned = proof.pipeline(spark).plan(original, checkpoint_dir=proof.root / "home")
    assert planned.refused
    assert "sink sqlite: generation 1, which was never claimed here" in str(planned)
    assert "to accept it: activated-elsewhere" in str(planned)
    with pytest.raises(ActivatedElsewhere):
        proof.run(proof.pipeline(spark))
    with pytest.raises(SinksAhead, match="not known here"):
        proof.run(proof.pipeline(spark), accept=["activated-elsewhere"])
    run = proof.run(proof.pipeline(spark), accept=["activated-elsewhere", "unknown-generation:sqlite"])
    assert run.recovery.rolled_back == ("sqlite",)
    assert proof.differing(truth.cut((3, 1), (5, 1))) == {}


@pytest.mark.timeout(900)
def test_with_the_store_killed_and_the_old_driver_paused_and_resumed_it_is_fenced_in_every_sink(
    spark: SparkSession, prove: Prove, truth: Truth, killable: Killable
) -> None:
    Pair(prove("delta", "sqlite"), killable).pause_and_take_over(spark, truth, "looked")


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kinds", CROWDS, ids=" + ".join)
def test_the_old_driver_paused_at_any_step_is_fenced_in_every_sink(
    spark: SparkSession, truth: Truth, tmp_path: Path, request: pytest.FixtureRequest, kinds: tuple[str, ...]
) -> None:
    for step in steps_of(map(name_of, kinds)):
        root = tmp_path / step.replace(" ", "-")
        root.mkdir()
        server = Killable(root / "seaweedfs")
        Pair(Proof.of(kinds, root, request.getfixturevalue), server).pause_and_take_over(spark, truth, step)
