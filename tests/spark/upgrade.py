"""What one Spark leaves for another: uninterrupted runs, with a checkpoint of every batch.

python -m spark.upgrade FOLDER 1     leaves them there, with the Spark of this Python, for `test_upgrade.py` in another

The last word is the state checkpoint format. Each has a process of its own: Spark 4.0 gives all RocksDB snapshots the
version of the format that it meets first.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyspark
from pyspark.sql import DataFrame, SparkSession

import holdfast
from spark.processors import TALLY, PandasTally
from spark.proof import Truth, tell_truth
from spark.session import SPARK_VERSION, start_session
from spark.workloads import BATCHES, STORES, WORKLOADS, Outputs, Workload, run

__all__ = ["Left", "leave_all", "left_in"]

_TOLD = "told.json"
_STATE = "spark.sql.streaming.stateStore"
_OFFSETS = "spark.sql.streaming.offsetLog.formatVersion"
_JOIN = "spark.sql.streaming.join.stateFormatVersion"


def _events(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema("at LONG, key STRING, value LONG").option("maxFilesPerTrigger", 1)
    return reader.json(str(folder / "events"))


def _without_wide_duplicates(spark: SparkSession, folder: Path) -> DataFrame:
    """Five columns of one type. Their names are such that 3.5, 4.0 and 4.3 each keep them in an order of its own."""
    columns = ["'q' || value % 2 AS quantity", "key AS channel", "'a' || value % 3 AS status"]
    more = ["'s' || at % 2 AS source", "'t' || at % 3 AS target"]
    return _events(spark, folder).selectExpr(*columns, *more).dropDuplicates()


class Sums(PandasTally):
    """A tally without a list, which is the one kind of state that not every Spark since 4.0 keeps in the same way."""

    def init(self, handle: Any) -> None:
        self._sums = handle.getValueState("sums", "n LONG, total LONG")
        self._seen = handle.getMapState("seen", "value LONG", "times LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N803
        n, total = self._sums.get() or (0, 0)
        for value in (value for frame in rows for value in frame["value"].tolist()):
            n, total = n + 1, total + value
            self._seen.updateValue((value,), (n,))
        self._sums.update((n, total))
        seen = sum(value for (value,), _ in self._seen.iterator())
        yield pd.DataFrame({"key": [key[0]], "fired": [False], "n": [n], "total": [total + seen]})


def _with_sums(spark: SparkSession, folder: Path) -> DataFrame:
    return _events(spark, folder).groupBy("key").transformWithStateInPandas(Sums(), TALLY, "update", "None")


_WINDOW = WORKLOADS["window"]
# State formats and queries that differ from one Spark to the other, beside the workloads.
_MORE = [
    replace(_WINDOW, name="dedup-wide", build=_without_wide_duplicates),
    replace(_WINDOW, name="window-checked", conf={f"{_STATE}.rowChecksum.enabled": "true"}, minimum=(4, 2)),
    # Settings are pinned, and looked at, whether the query has a use for them or not.
    replace(_WINDOW, name="window-pins-join-3", conf={_JOIN: "3"}, minimum=(4, 1)),
    replace(_WINDOW, name="window-pins-join-4", conf={_JOIN: "4"}, minimum=(4, 3)),
    replace(_WINDOW, name="window-offsets-2", conf={_OFFSETS: "2"}, minimum=(4, 2)),
]
if "tws-pandas" in WORKLOADS:
    _MORE += [
        replace(WORKLOADS["tws-pandas"], name="tws-avro", conf={f"{_STATE}.encodingFormat": "avro"}),
        replace(WORKLOADS["tws-pandas"], name="tws-sums", build=_with_sums),
    ]
_KNOWN = {**WORKLOADS, **{workload.name: workload for workload in _MORE if workload.minimum <= SPARK_VERSION}}

# The same query in a format that every Spark knows: its checkpoint pins the other, whatever the session says.
_PLAINER = {
    "join-inner-1": "join-inner-2",
    "join-left-3": "join-left-2",
    "join-left-4": "join-left-2",
    "window-checked": "window",
    "window-offsets-2": "window",
    "window-pins-join-3": "window",
    "window-pins-join-4": "window",
}

_CUT = 4
_CASES = [
    *[(name, store) for name in ("window", "join-left-2", "dedup", "group-state") for store in ("hdfs", "changelog")],
    ("window", "rocksdb"),
    ("window", "rocksdb-2"),
    ("window", "changelog-2"),
    ("window-checked", "changelog"),
    ("window-offsets-2", "hdfs"),
    ("window-pins-join-3", "hdfs"),
    ("window-pins-join-4", "hdfs"),
    ("dedup-wide", "hdfs"),
    ("join-inner-1", "hdfs"),
    ("join-left-2", "changelog-2"),
    ("join-left-3", "changelog"),
    ("join-left-4", "changelog"),
    ("named-sources", "changelog"),
    ("tws-pandas", "changelog"),
    ("tws-pandas", "changelog-2"),
    ("tws-avro", "changelog"),
    ("tws-sums", "changelog"),
]


@dataclass(frozen=True)
class Left:
    """A run that a Spark left, and where."""

    root: Path

    @property
    def spark(self) -> str:
        """The version of the Spark that left it."""
        return str(self._told["spark"])

    @property
    def cut(self) -> int:
        """The batch after which to go on."""
        return int(self._told["cut"])

    @property
    def known(self) -> bool:
        """Whether this Spark can be given such a query at all."""
        return self._workload is not None

    def truth(self) -> Truth:
        told = self._told
        assert self._workload is not None
        outputs = {int(batch): [tuple(row) for row in rows] for batch, rows in told["outputs"].items()}
        store = told["store"] if told["store"] in STORES else "changelog"
        pipeline = holdfast.open(str(self.root / "repository")).pipeline("proof")
        return Truth(self._workload, store, self.root / "inputs", outputs, pipeline)

    @property
    def _told(self) -> Any:
        return json.loads((self.root / _TOLD).read_text())

    @property
    def _workload(self) -> Workload | None:
        name = self._told["name"]
        return _KNOWN.get(name) or _KNOWN.get(_PLAINER.get(name, ""))


def left_in(folder: Path) -> Iterator[Left]:
    """What was left there that this Spark can be given."""
    for file in sorted(folder.glob(f"*/{_TOLD}")):
        if (left := Left(file.parent)).known:
            yield left


def leave_all(spark: SparkSession, folder: Path, checkpoint_format: int) -> None:
    """Leave all that this Spark can run with a state checkpoint format."""
    for name, store in _CASES:
        workload = _KNOWN.get(name)
        if workload is not None and store in workload.stores and store.endswith("-2") == (checkpoint_format == 2):
            _leave(spark, workload, store, folder / f"{name}-on-{store}")
    _leave_stopped(spark, "changelog" if checkpoint_format == 1 else "changelog-2", folder / "stopped")


def _leave(spark: SparkSession, workload: Workload, store: str, root: Path) -> None:
    truth = tell_truth(spark, workload, store, root)
    # Who goes on has nothing but the repository and the input.
    shutil.rmtree(root / "truth", ignore_errors=True)
    _tell(root, workload, store, _CUT, truth.outputs)


def _leave_stopped(spark: SparkSession, store: str, root: Path) -> None:
    """Leave a savepoint of a query that was stopped, as the how-to has it, and what the same Spark puts out after."""
    given = (spark, _WINDOW, store, root / "inputs", str(root / "checkpoint"))
    ran = run(*given, upto=BATCHES // 2)
    _call("init", root / "repository")
    repository = ("--repo", root / "repository")
    _call("capture", root / "checkpoint", *repository, "-p", "proof", "--stopped", "--savepoint", "before-upgrade")
    _tell(root, _WINDOW, store, max(ran), run(*given))
    shutil.rmtree(root / "checkpoint", ignore_errors=True)


def _call(*command: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "holdfast", *command], check=True)


def _tell(root: Path, workload: Workload, store: str, cut: int, outputs: Outputs) -> None:
    told = {"spark": pyspark.__version__, "name": workload.name, "store": store, "cut": cut, "outputs": outputs}
    (root / _TOLD).write_text(json.dumps(told))
    print(f"left {root.name}: {len(outputs)} batches", flush=True)


if __name__ == "__main__":
    session = start_session()
    leave_all(session, Path(sys.argv[1]), int(sys.argv[2]))
    session.stop()
