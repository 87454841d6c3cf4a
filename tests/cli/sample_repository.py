"""A repository as a user's pipelines leave it: two runs of one pipeline, a savepoint, a pin, a sink that failed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from click.testing import CliRunner

import holdfast
from holdfast import CheckpointState, ConnectorOffset, Description, Repository, StoredPipeline
from holdfast.cli import cli
from holdfast.codec import encode_state, encode_value
from holdfast.draft import PartitionState
from holdfast.errors import SinkFailed
from holdfast.manifest import SinkStatus
from holdfast.settle import LoopSink

__all__ = ["Answer", "invoke", "make_orders", "take_checkpoints"]

START_MS = 1_763_200_000_000


class Sink(LoopSink):
    """Commits in memory, until it is told to fail."""

    def __init__(self) -> None:
        self.fails = False

    def prepare(self, sequence: int) -> Any:
        return {"up_to": sequence}

    def commit(self, token: Any) -> Any:
        if self.fails:
            raise OSError("disk full")
        return {"rows": token["up_to"]}

    def roll_back(self, position: Any) -> None:
        """Nothing is kept here that could be taken back."""


def take_checkpoints(pipeline: StoredPipeline, first: int, last: int, *, fail_last: bool = False) -> None:
    """One run of a pipeline: a take-over, then a checkpoint for each epoch from first to last."""
    sinks = {"table": Sink(), "topic": Sink()}
    with pipeline.recover(sinks=sinks) as checkpointer:
        for epoch in range(first, last + 1):
            draft = checkpointer.begin(epoch, carry=True)
            if epoch == first:
                states = [PartitionState("totals", n, bytes([epoch, n]) * 30_000) for n in range(3)]
                checkpointer.save_partitions(draft, states)
            else:
                checkpointer.save_delta(draft, "totals", epoch % 3, bytes([epoch]) * 20_000)
            draft.save_driver_state("loop", encode_state(_state(pipeline.name, epoch)))
            draft.save_file("logs/one.txt", b"line\n" * epoch)
            sinks["topic"].fails = fail_last and epoch == last
            with contextlib.suppress(SinkFailed):
                checkpointer.save_manifest(draft, _description(epoch, sinks))


def _state(name: str, epoch: int) -> CheckpointState:
    return CheckpointState(
        stream=name,
        sequence=epoch * 10,
        created_ns=START_MS * 1_000_000,
        event_count=epoch * 10,
        operator_states={"counts": encode_value({"apples": epoch, "pears": [1, 2]})},
    )


def _description(epoch: int, sinks: Mapping[str, Sink]) -> Description:
    kafka = ConnectorOffset(offsets={f"partition-{n}": str(1000 + epoch * 7 + n) for n in (0, 2, 10)})
    return Description(
        source_offsets={"kafka": kafka, "postgres": ConnectorOffset(offsets={"lsn": f"0/12AB{epoch:02d}"})},
        sinks={name: SinkStatus(status="pending", token=sink.prepare(epoch)) for name, sink in sinks.items()},
        sink_epochs=dict.fromkeys(sinks, epoch),
        watermark=START_MS + epoch * 1000,
        pipeline_hash="abcd",
        fingerprint={"sources": "same", "operators": f"version {epoch // 3}"},
        processed_records=epoch * 100,
    )


def make_orders(url: str, options: Mapping[str, str] | None = None) -> Repository:
    """Pipeline `orders`: slots 0-0 to 0-3, then 1-0 and 1-1; 0-1 is a savepoint and 0-2 pinned."""
    repository = holdfast.open(url, create=True, options=options)
    orders = repository.pipeline("orders")
    take_checkpoints(orders, 0, 3)
    orders["epoch:1"].savepoint("before-upgrade")
    orders["epoch:2"].pin("audit")
    take_checkpoints(orders, 4, 5)
    return repository


class Answer:
    """What a command gave: its exit code, and what it wrote."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def invoke(*words: str, answer: str | None = None) -> Answer:
    """Run a command in this process."""
    result = CliRunner().invoke(cli, list(words), input=answer, prog_name="holdfast")
    return Answer(result.exit_code, result.stdout, result.stderr)
