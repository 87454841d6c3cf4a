"""A process that works on a pipeline until it is killed: publishes, names, prunes, sweeps, copies, as fast as it can.

What it was told is durable goes into a journal, one line each, before it goes on.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast.checkpointer import Checkpointer
from holdfast.draft import Description, PartitionState
from holdfast.errors import NameTaken, StillNeeded
from holdfast.manifest import SinkStatus
from holdfast.settle import LoopSink


class FileSink(LoopSink):
    """Rows in a file, one durable line a token; a token that is there already is not written again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _rows(self) -> list[str]:
        if not self.path.exists():
            return []
        whole = self.path.read_text().split("\n")
        return whole[:-1]

    def fence(self, pipeline_id: str, generation: int, token: str) -> Any:
        # A kill can leave the last line without its end: it was never committed. The file is replaced as a whole, since
        # a kill between its being emptied and written would take committed rows.
        rows = self._rows()
        whole = self.path.with_suffix(".whole")
        whole.write_text("".join(f"{row}\n" for row in rows))
        whole.replace(self.path)
        return len(rows) or None

    def prepare(self, sequence: int) -> Any:
        return sequence

    def commit(self, token: Any) -> Any:
        rows = self._rows()
        if token not in rows:
            with self.path.open("a") as file:
                file.write(f"{token}\n")
                file.flush()
                os.fsync(file.fileno())
            rows.append(token)
        return rows.index(token) + 1


def note(journal: Path, line: str) -> None:
    with journal.open("a") as file:
        file.write(line + "\n")


def work(root: Path, seed: str) -> None:
    draw = random.Random(seed)
    repo = holdfast.open(str(root / "repo"), create=True)
    copy = holdfast.open(str(root / "copy"), create=True)
    pipeline = repo.pipeline("p")
    sinks = {"out": FileSink(root / "rows")}
    note(root / "journal", "begun")
    with pipeline.recover("start", sinks=sinks) as checkpointer:
        while True:
            one_round(draw, root, repo, copy, checkpointer)


def one_round(
    draw: random.Random, root: Path, repo: holdfast.Repository, copy: holdfast.Repository, checkpointer: Checkpointer
) -> None:
    pipeline = repo.pipeline("p")
    tip = checkpointer.tip
    epoch = tip.epoch + 1 if tip else 0
    draft = checkpointer.begin(epoch, carry=True)
    for partition in range(3):
        is_delta = tip is not None and draw.random() < 0.7
        data = bytes(f"{epoch}/{partition}/{draw.random()}/", "ascii") * draw.choice((10, 400, 4000))
        draft.save_partition(PartitionState("op", partition, data, is_delta))
    about = Description(sinks={"out": SinkStatus(status="pending", token=f"row-{epoch}")})
    manifest = checkpointer.save_manifest(draft, about)
    note(root / "journal", f"acked {manifest.generation} {manifest.slot} {epoch}")
    if draw.random() < 0.2:
        try:
            pipeline.checkpoints()[-1].savepoint(f"s-{epoch}")
            note(root / "journal", f"named s-{epoch}")
        except (NameTaken, StillNeeded):
            return
    if draw.random() < 0.3:
        pipeline.prune(holdfast.KeepPolicy(last=draw.choice((2, 4))), dry_run=False)
        pipeline.sweep()
    if draw.random() < 0.2:
        repo.copy_to(copy, "p")


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2])
