"""What the README shows of Spark runs as it stands, on a real query and with a real folder in place of the address."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_one_line_of_the_readme_attaches_names_and_stops(spark: SparkSession, tmp_path: Path) -> None:
    [code] = [
        b for b in re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE) if "attach(" in b
    ]
    holdfast.open(str(tmp_path / "repository"), create=True)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = (
        rows.groupBy((rows.value % 3).alias("k"))
        .count()
        .writeStream.outputMode("update")
        .foreachBatch(lambda batch, _: batch.collect() and None)
        .option("checkpointLocation", str(tmp_path / "ck"))
        .start()
    )
    try:
        local = re.sub(r'"s3://[^"]*"', repr((tmp_path / "repository").as_uri()), code)
        exec(compile(local, "snippet", "exec"), {"holdfast": holdfast, "query": query})
    finally:
        query.stop()
    orders = holdfast.open(str(tmp_path / "repository")).pipeline("orders")
    assert set(orders.savepoints()) == {"before-upgrade", "v1"}
    assert orders["v1"].epoch >= orders["before-upgrade"].epoch
    assert orders["v1"].verify().faults == []
