"""A driver on a cluster that captures, and restores, by its executors alone: `python -m spark.distribute_program JSON`.

What it tells is a line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import holdfast
from holdfast.spark.java import use_java
from holdfast.store import Buffer
from holdfast.testing.faults import Around


class Watched(Around):
    """Counts the objects that this process writes where the bytes of checkpoints lie."""

    objects = 0

    def create(self, key: str, data: Buffer) -> bool:
        self.objects += "/data/" in key
        return super().create(key, data)

    def write(self, key: str, chunks: Iterable[Buffer]) -> int:
        self.objects += "/data/" in key
        return super().write(key, chunks)


def main(master: str, conf: dict[str, str], place: str, options: dict[str, str]) -> dict[str, Any]:
    from pyspark.sql import DataFrame

    from spark.attaching import KEYS, ROWS, counting, until
    from spark.session import start_session

    use_java()
    spark = start_session(conf, master)
    repository = holdfast.open(f"{place}-repository", create=True, options=options)
    repository._records.store = watched = Watched(repository.store)
    spark_place = place.replace("s3://", "s3a://")
    query = counting(spark, spark_place)
    attached = holdfast.attach(query, repository, pipeline="counts", every="1 batch", distribute=True, options=options)
    until(lambda: attached.status().captures >= 2, attached.status())
    status = attached.status()
    attached.stop()
    checkpoint = attached.pipeline.checkpoints()[0]
    assert not checkpoint.verify().faults
    laid = checkpoint.restore(f"{spark_place}-restored", options=options, session=spark)
    seen: dict[int, dict[int, int]] = {}

    def collect(batch: DataFrame, number: int) -> None:
        seen[number] = {row.key: row["count"] for row in batch.collect()}

    counting(spark, str(laid.destination), collect, availableNow=True).awaitTermination()
    after = checkpoint.epoch + 1
    spark.stop()
    return {
        "movers": status.movers,
        "failures": status.failures,
        "captures": len(attached.pipeline.checkpoints()),
        "objects_by_the_driver": watched.objects,
        "counted_on": seen == {after: dict.fromkeys(range(KEYS), ROWS // KEYS * (after + 1))},
    }


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
