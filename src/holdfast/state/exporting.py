"""State as Parquet: written by Spark's executors into a folder that appears whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint import Checkpoint
from holdfast.errors import BadURL
from holdfast.laying import Folder, Progress
from holdfast.spark.places import SparkPlace
from holdfast.state.reading import open_state, with_fields
from holdfast.state.session import explained_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Exported", "export"]


@dataclass(frozen=True)
class Exported:
    """Where the rows of a part were written, and how many they are."""

    destination: Path
    part: str
    rows: int
    files: int
    bytes: int


def export(
    checkpoint: Checkpoint,
    destination: str | Path,
    *,
    operator: int | None = None,
    part: str | None = None,
    where: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write the rows of one part as Parquet into a new local folder.

    To write elsewhere, or in another form, open the state and write its rows with Spark. Raises PlaceNotEmpty if
    something is there.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    place = SparkPlace(str(destination)).folder
    if place is None:
        raise BadURL(str(destination), "rows are exported into a local folder")
    folder = Folder(place)
    with open_state(checkpoint, spark, progress=progress) as state, folder.opened():
        rows = with_fields(state.rows(operator, part, where))
        counted = Observation()
        with explained_by_spark(state.inventory.checkpoint):
            rows.observe(counted, f.count(f.lit(1)).alias("rows")).write.mode("append").parquet(
                f"file:{folder.partial}"
            )
        files = [path for path in folder.partial.iterdir() if path.suffix == ".parquet"]
        return Exported(
            destination=folder.destination,
            part=str(state.inventory.choose(operator, part)),
            rows=int(counted.get["rows"]),
            files=len(files),
            bytes=sum(path.stat().st_size for path in files),
        )
