"""Another number of partitions for a query's state, which Spark freezes at its first start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.checkpoint import Checkpoint
from holdfast.errors import BadValue, StateFixed, StateNotKept
from holdfast.laying import Progress
from holdfast.spark.lay import Changes, Laid, Regrown, lay_down
from holdfast.spark.logs import PARTITIONS
from holdfast.spark.state import ROCKSDB
from holdfast.state.comparing import count_unlike
from holdfast.state.folders import cut_of, keep_only, schemas_here
from holdfast.state.inventory import Inventory
from holdfast.state.reading import State, open_state, read_part
from holdfast.state.session import explained_by_spark, failed_in_spark, first_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["rescale"]

NOT_ROCKSDB = (
    "its state is {provider}, and Spark repartitions RocksDB only. The way around: start the query in a new checkpoint "
    "directory with spark.sql.streaming.stateStore.providerClass set to RocksDBStateStoreProvider and the partitions "
    "that it is to have, and let it read its sources again"
)


def rescale(
    checkpoint: Checkpoint,
    destination: str | Path,
    partitions: int,
    *,
    spark: SparkSession | None = None,
    fork: bool = False,
    state_only: bool = False,
    progress: Progress | None = None,
) -> Laid:
    """Lay a checkpoint down in a new local folder with its state in another number of partitions.

    Spark's own repartition does it, on a copy, as a batch without data after the checkpoint's; then all rows of all
    operators are compared with the checkpoint. It claims nothing: it is a restore, with its conditions. Raises
    StateFixed for state that can't be repartitioned, StateNotKept if a row is not the same, both before there is a
    destination.
    """
    if partitions < 1:
        raise BadValue("partitions", f"{partitions} is not a number of partitions")
    with open_state(checkpoint, spark, progress=progress) as state:
        _refuse(state, partitions)
        return lay_down(
            checkpoint.pipeline.records,
            checkpoint.manifest,
            str(destination),
            Changes(fork),
            state_only=state_only,
            progress=progress,
            regrow=lambda folder, root: _repartition(state, folder, root, partitions),
        )


def _refuse(state: State, partitions: int) -> None:
    inventory = state.inventory
    if not inventory.operators:
        raise StateFixed(inventory.checkpoint, "the query keeps no state")
    if inventory.provider != ROCKSDB.name:
        raise StateFixed(inventory.checkpoint, NOT_ROCKSDB.format(provider=inventory.provider))
    if partitions == _partitions(inventory):
        raise BadValue("partitions", f"the state of {inventory.checkpoint} has {partitions} already")
    if not hasattr(state.session, "_streamingCheckpointManager"):
        why = f"Spark {state.session.version} has no repartition; 4.2 and later do"
        raise StateFixed(inventory.checkpoint, why)


def _partitions(inventory: Inventory) -> int:
    return int(inventory.settings[PARTITIONS])


def _repartition(state: State, folder: Path, root: str, partitions: int) -> Regrown:
    inventory = state.inventory
    with schemas_here(folder, root):
        try:
            # Private in PySpark 4.2 and 4.3, and the only way that Spark itself has.
            state.session._streamingCheckpointManager.repartition(f"file:{folder}", partitions)
        except failed_in_spark() as error:
            raise StateFixed(inventory.checkpoint, f"Spark does not repartition it: {first_words(error)}") from error
        cut = cut_of(folder, inventory.epoch + 1, inventory.checkpoint)
        files, size = keep_only(folder, cut)
        rows = sum(_compare(state, folder, number) for number in inventory.operators)
    said = f"state in {partitions} partitions, not {_partitions(inventory)}, all {rows:,} rows compared"
    return Regrown(cut.epoch, files, size, (said,))


def _compare(state: State, folder: Path, operator: int) -> int:
    """Compare every part of an operator with the checkpoint's, and give how many rows that were."""
    rows = 0
    for part in state.inventory.of_operator(operator):
        with explained_by_spark(state.inventory.checkpoint):
            after = read_part(state.session, f"file:{folder}", part, state.inventory.checkpoint, whole=False)
            unlike = count_unlike(state.as_kept(part), after)
            rows += after.count()
        if unlike:
            raise StateNotKept(state.inventory.checkpoint, f"{part}: {unlike} rows are not the same")
    return rows
