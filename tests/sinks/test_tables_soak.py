"""Kills without end: tables lose nothing and double nothing, whenever their driver dies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from holdfast.sinks.parquet import files
from sinks.killing import kill_at_random
from sinks.table_driver import truth

CASES = [
    ("parquet", "append", True),
    ("parquet", "overwrite", False),
    ("delta", "append", True),
    ("delta", "upsert", False),
    ("delta", "overwrite", False),
    ("iceberg", "append", True),
    ("iceberg", "upsert", False),
]


def rows_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    if spec["kind"] == "parquet":
        return [row for file in files(spec["url"]) for row in pq.read_table(file).to_pylist()]
    if spec["kind"] == "delta":
        rows: list[dict[str, Any]] = DeltaTable(spec["url"]).to_pyarrow_table().to_pylist()
        return rows
    catalog = load_catalog(**spec["catalog"])
    rows = catalog.load_table(spec["table"]).scan().to_arrow().to_pylist()
    catalog.close()
    return rows


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("kind", "mode", "adopt"), CASES)
def test_a_table_loses_nothing_and_doubles_nothing(tmp_path: Path, kind: str, mode: str, adopt: bool) -> None:
    rounds = int(os.environ.get("HOLDFAST_SOAK_ROUNDS", "100"))
    uri, warehouse = f"sqlite:///{tmp_path / 'catalog.db'}", (tmp_path / "warehouse").as_uri()
    spec = {
        "kind": kind,
        "mode": mode,
        "adopt": adopt,
        "url": str(tmp_path / "table"),
        "catalog": {"name": "test", "type": "sql", "uri": uri, "warehouse": warehouse},
        "table": "ns.words",
    }
    epochs = 10 * rounds
    seed = int(os.environ.get("HOLDFAST_SOAK_SEED", "1"))
    kill_at_random(spec, tmp_path / "ledger", seed=seed, epochs=epochs, rounds=rounds)
    assert sorted((row["id"], row["word"]) for row in rows_of(spec)) == truth(epochs, mode)
