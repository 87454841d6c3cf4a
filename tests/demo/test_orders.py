"""The demo's orders are the same everywhere, and none is too late."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.demo.orders import BEGINNING, DAY, LATENESS, LATEST, MINUTE, SCHEMA, close_orders, write_orders


def read(path: Path) -> list[dict[str, int]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_orders_are_the_same_on_every_machine_and_any_file_can_be_made_alone(tmp_path: Path) -> None:
    for number in range(3):
        write_orders(tmp_path / "a", number, 50)
    write_orders(tmp_path / "b", 2, 50)
    (alone,) = (tmp_path / "b").iterdir()
    assert alone.read_bytes() == (tmp_path / "a" / alone.name).read_bytes()
    orders = [order for path in sorted((tmp_path / "a").iterdir()) for order in read(path)]
    assert [order["id"] for order in orders] == [*range(150)]
    assert sorted(orders[0]) == sorted(part.split()[0] for part in SCHEMA.split(", "))


def test_some_orders_are_late_and_none_so_late_that_it_would_be_dropped(tmp_path: Path) -> None:
    write_orders(tmp_path, 5, 1000)
    late = [BEGINNING + 5 * MINUTE - order["ts"] for order in read(tmp_path / "00005.json")]
    assert 0 < max(late) <= LATEST < int(LATENESS.split()[0]) * MINUTE


def test_the_end_moves_the_time_past_every_minute(tmp_path: Path) -> None:
    assert close_orders(tmp_path, 20) == 2
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["00020.json", "00021.json"]
    (end,) = read(tmp_path / "00020.json")
    write_orders(tmp_path, 20 + DAY + 1, 100)
    assert min(order["ts"] for order in read(tmp_path / f"{20 + DAY + 1:05d}.json")) > end["ts"] - 4 * MINUTE
