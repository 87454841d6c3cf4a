"""A driver in a process of its own, to be killed: it commits epoch after epoch to a table, as a pipeline does.

    python table_driver.py SINK LEDGER GENERATION EPOCHS [EPOCH:STEP]

SINK says what sink to make; rows are staged below its root, or beside the ledger. Each epoch is staged, prepared,
decided (a file in the ledger) and committed; an epoch that was decided and not committed is driven on first. At a step
that is named (staged, prepared, decided) it waits for a file `go` in the ledger. Epoch n holds the ids from 10 n to
10 n + 9; in mode upsert it also changes the first id of each of the 20 epochs before it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.decide.chain import NOTHING
from holdfast.epochs import Holder, Link, Staged, StagedFile, Step
from holdfast.errors import Fenced
from holdfast.ids import new_token
from holdfast.sinks.contract import Sink
from holdfast.sinks.staged import StagedRows, encode_schema
from holdfast.store import Address

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])
FENCED = 5


def rows_of(epoch: int, mode: str) -> list[dict[str, Any]]:
    new = [{"id": 10 * epoch + number, "word": f"e{epoch}"} for number in range(10)]
    if mode != "upsert":
        return new
    return new + [{"id": 10 * before, "word": f"e{epoch}"} for before in range(max(0, epoch - 20), epoch)]


def truth(epochs: int, mode: str) -> list[tuple[int, str]]:
    """What the table holds in the end."""
    found: dict[int, str] = {}
    for epoch in range(epochs - 1 if mode == "overwrite" else 0, epochs):
        found.update({row["id"]: row["word"] for row in rows_of(epoch, mode)})
    return sorted(found.items())


def open_sink(spec: dict[str, Any]) -> Sink:
    kind, mode = spec["kind"], spec.get("mode", "append")
    key = ["id"] if mode == "upsert" else []
    if kind == "parquet":
        from holdfast.sinks.parquet import Parquet

        return Parquet(spec["url"], mode=mode, options=spec.get("options"))
    if kind == "delta":
        from holdfast.sinks.delta import Delta

        return Delta(spec["url"], mode=mode, key=key, options=spec.get("options"))
    if kind == "postgres":
        from holdfast.sinks.postgres import Postgres

        return Postgres(spec["url"], spec["table"], mode=mode, key=key)
    if kind == "duckdb":
        from holdfast.sinks.duckdb import DuckDB

        return DuckDB(spec["path"], spec["table"], mode=mode, key=key)
    if kind == "kafka":
        from holdfast.sinks.kafka import Kafka

        return Kafka(spec["bootstrap"], spec["topic"])
    from holdfast.sinks.iceberg import Iceberg

    return Iceberg(spec["catalog"], spec["table"], mode=mode, key=key)


def stage(place: Address, epoch: int, mode: str) -> Staged:
    table = pa.Table.from_pylist(rows_of(epoch, mode), schema=SCHEMA)
    store, files = place.store(), []
    for number, part in enumerate((table.slice(0, 5), table.slice(5))):
        sink = pa.BufferOutputStream()
        pq.write_table(part, sink)
        data = sink.getvalue().to_pybytes()
        store.create(f"part-{number:05}.parquet", data)
        files.append(StagedFile(f"part-{number:05}.parquet", len(data), part.num_rows))
    return Staged(place.url, files, encode_schema(SCHEMA))


def main(spec: dict[str, Any], ledger: Path, generation: int, epochs: int) -> None:
    sink = open_sink(spec)
    holder = Holder("pipeline-1", generation, new_token())
    marker = sink.fence(holder, NOTHING)
    options = spec.get("options", {})
    for path in sorted(ledger.glob("*.json")):
        decision = json.loads(path.read_bytes())
        step = msgspec.convert(decision["step"], Step)
        if step.epoch > marker.at.epoch:
            staged = msgspec.convert(decision["staged"], Staged)
            sink.commit(step, decision["token"], StagedRows(staged, Address(staged.url, options)))
            marker = sink.look() or marker
    while marker.at.epoch + 1 < epochs:
        epoch = marker.at.epoch + 1
        step = Step(generation, marker.at, Link(epoch, f"at {epoch}"))
        where = getattr(sink, "root", Address(str(ledger))) if spec.get("adopt") else Address(str(ledger), {})
        place = Address(f"{where.url.rstrip('/')}/hf-{generation}-{epoch}-{new_token()}", where.options)
        staged = stage(place, epoch, spec.get("mode", "append"))
        rows = StagedRows(staged, place)
        reach(f"{epoch}:staged", ledger)
        token = sink.prepare(step, rows)
        reach(f"{epoch}:prepared", ledger)
        decide(ledger / f"{epoch:010}.json", {"step": step, "staged": staged, "token": token})
        reach(f"{epoch}:decided", ledger)
        sink.commit(step, token, rows)
        marker = msgspec.structs.replace(marker, at=step.after, decided=generation)


def reach(point: str, ledger: Path) -> None:
    if point not in sys.argv[5:]:
        return
    sys.stdout.write(f"{point}\n")
    sys.stdout.flush()
    while not (ledger / "go").exists():
        time.sleep(0.01)


def decide(path: Path, decision: dict[str, Any]) -> None:
    """One decision for each epoch; a later generation's takes the place of one that nobody had to commit."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False, suffix=".tmp") as file:
        file.write(msgspec.json.encode(decision))
    Path(file.name).replace(path)


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    except Fenced:
        sys.exit(FENCED)
