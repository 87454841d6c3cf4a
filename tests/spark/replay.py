"""The history of a real checkpoint directory, played again file by file: as Spark wrote it, and purged as Spark purges.

A race or a restart at any point of it can then be tried at will, in milliseconds.
"""

from __future__ import annotations

import json
import shutil
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.decide.timeline import timeline
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.cut import Cut, batches_in, cut_at
from holdfast.spark.lay import lay_down
from holdfast.store.local_directory import LocalDirectory
from spark.workloads import WORKLOADS, run

__all__ = ["BATCHES", "History", "Replay", "assert_all_restore", "record_history"]

BATCHES = 24
ORDER = {"SSTs": 0, "logs": 0, "state": 1, "commits": 2, "sources": 3, "offsets": 4}
"""Of files written within one tick of the clock: tables before what names them, a batch before the next."""


@dataclass(frozen=True)
class History:
    """The files of a directory in the order in which Spark wrote them."""

    root: Path
    names: tuple[str, ...]

    @property
    def last(self) -> int:
        return max(int(name.partition("/")[2]) for name in self.names if name.startswith("commits/"))


def record_history(spark: SparkSession, root: Path) -> History:
    """One run of a windowed aggregation on RocksDB with changelogs, in a real Spark."""
    run(spark, WORKLOADS["window"], "changelog", root / "inputs", str(root / "checkpoint"), upto=BATCHES)
    return _read_history(root / "checkpoint")


def _read_history(root: Path) -> History:
    files = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")]
    names = {str(path.relative_to(root)): path.stat().st_mtime_ns for path in files}
    return History(root, tuple(sorted(names, key=lambda name: (names[name], _rank(name), name))))


def _rank(name: str) -> int:
    parts = name.split("/")
    return ORDER.get(parts[-2], 1) if parts[0] == "state" and len(parts) > 1 else ORDER.get(parts[0], -1)


@dataclass
class Replay:
    """Plays a history into a live directory. With `retain`, what Spark would purge after so many batches goes."""

    history: History
    live: Path
    retain: int | None = None
    _played: int = field(default=0)

    @property
    def is_over(self) -> bool:
        return self._played == len(self.history.names)

    def step(self) -> str:
        """Write the next file, whole at once, and give its name."""
        name = self.history.names[self._played]
        self.write(name)
        self._played += 1
        if name.startswith("commits/") and self.retain is not None:
            self._purge(int(name.partition("/")[2]) - self.retain)
        return name

    def play(self, files: int) -> None:
        """Write so many files, or those that are left."""
        for _ in range(files):
            if not self.is_over:
                self.step()

    def to(self, name: str) -> None:
        """Go on until this file is written."""
        while self.step() != name:
            pass

    def run(self, pace: float = 0.0) -> None:
        """Go on to the end, with a pause of `pace` seconds after each batch."""
        while not self.is_over:
            if self.step().startswith("commits/"):
                time.sleep(pace)

    def write(self, name: str) -> None:
        path = self.live / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        shutil.copyfile(self.history.root / name, temporary)
        temporary.rename(path)

    def _purge(self, before: int) -> None:
        """Remove logs of batches before this one, and state that no version from it on needs."""
        for path in [*(self.live / "offsets").iterdir(), *(self.live / "commits").iterdir()]:
            if path.name.isdecimal() and int(path.name) < before:
                path.unlink()
        for partition in (self.live / "state" / "0").iterdir():
            snapshots = [int(path.stem) for path in partition.glob("*.zip") if int(path.stem) <= before]
            gone: set[str] = set()
            for path in [path for path in partition.glob("*.*") if path.stem.isdecimal()]:
                if int(path.stem) < max(snapshots, default=0):
                    gone |= _tables(path) if path.suffix == ".zip" else set()
                    path.unlink()
            kept = {name for path in partition.glob("*.zip") for name in _tables(path)}
            for name in gone - kept:
                (partition / "SSTs" / name).unlink()


def _tables(snapshot: Path) -> set[str]:
    with zipfile.ZipFile(snapshot) as archive:
        fields = json.loads(archive.read("metadata").decode().partition("\n")[2])
    return {sst["dfsSstFileName"] for sst in fields["sstFiles"]}


def assert_all_restore(records: PipelineRecords, folder: Path) -> list[int]:
    """Every checkpoint is laid down, each byte verified, and is a whole cut there; gives the epochs, oldest first."""
    epochs = []
    for slot in timeline(records.world()):
        manifest = records.manifest(slot)
        place = folder / f"restored-{slot}-{time.monotonic_ns()}"
        lay_down(records, manifest, str(place))
        laid = LocalDirectory(place)
        assert batches_in(laid.look()).commits == (manifest.epoch,)
        found = cut_at(laid, laid.look(), manifest.epoch)
        assert isinstance(found, Cut), found
        assert set(found.files) == set(manifest.files)
        epochs.append(manifest.epoch)
        shutil.rmtree(place)
    assert len(set(epochs)) == len(epochs)
    return epochs
