"""The demo's data is the same everywhere, and its verdict tells what was lost from what was doubled."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.demo.orders import compare, read_totals, write_orders


def test_the_orders_are_the_same_on_every_machine(tmp_path: Path) -> None:
    assert write_orders(tmp_path / "a", 3, 50) == write_orders(tmp_path / "b", 3, 50) == 150
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    first = json.loads((tmp_path / "a" / "00000.json").read_text().splitlines()[0])
    assert sorted(first) == ["cents", "id", "sku", "ts"]


def test_the_last_batch_has_the_last_word(tmp_path: Path) -> None:
    rows = [("000009", 1), ("000010", 2)]
    for number, orders in rows:
        row = {"minute": "m", "sku": "s", "orders": orders, "cents": 10 * orders}
        (tmp_path / f"batch-{number}.json").write_text(json.dumps(row) + "\n")
    (tmp_path / "batch-000011.tmp").write_text("half")
    assert read_totals(tmp_path) == {("m", "s"): (2, 20)}


def test_the_verdict_counts_lost_and_doubled_orders_and_any_difference() -> None:
    truth = {("m", "a"): (3, 30), ("m", "b"): (2, 20), ("m", "c"): (1, 10)}
    assert compare(truth, truth).good
    assert compare(truth, {}) == (0, 6, 0, 3)
    assert compare(truth, {**truth, ("m", "a"): (5, 30)}) == (8, 0, 2, 1)
    assert compare(truth, {**truth, ("m", "d"): (1, 1)}) == (7, 0, 1, 1)
    cents = compare(truth, {**truth, ("m", "b"): (2, 21)})
    assert (cents.lost, cents.doubled, cents.differing, cents.good) == (0, 0, 1, False)
