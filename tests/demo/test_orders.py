"""The demo's orders are the same everywhere but for their day, and none is too late."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from holdfast.demo.orders import LATENESS, LATEST, MINUTE, SCHEMA, beginning, close_orders, write_orders

SINCE = 1_800_000_000


def read(path: Path) -> list[dict[str, int]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_orders_are_the_same_on_every_machine_and_any_file_can_be_made_alone(tmp_path: Path) -> None:
    for number in range(3):
        write_orders(tmp_path / "a", number, 50, SINCE + number * MINUTE)
    write_orders(tmp_path / "b", 2, 50, SINCE + 2 * MINUTE)
    (alone,) = (tmp_path / "b").iterdir()
    assert alone.read_bytes() == (tmp_path / "a" / alone.name).read_bytes()
    orders = [order for path in sorted((tmp_path / "a").iterdir()) for order in read(path)]
    assert [order["id"] for order in orders] == [*range(150)]
    assert sorted(orders[0]) == sorted(part.split()[0] for part in SCHEMA.split(", "))


def test_on_another_day_they_fall_into_the_same_minutes(tmp_path: Path) -> None:
    counts = []
    for now in (SINCE + 17, SINCE + 86_400 + 59.9):
        since = beginning(3, now)
        write_orders(tmp_path, 0, 500, since)
        counts.append(Counter((order["ts"] // MINUTE - since // MINUTE) for order in read(tmp_path / "00000.json")))
    assert counts[0] == counts[1]


def test_some_orders_are_late_and_none_so_late_that_it_would_be_dropped(tmp_path: Path) -> None:
    write_orders(tmp_path, 5, 1000, SINCE)
    late = [SINCE - order["ts"] for order in read(tmp_path / "00005.json")]
    assert 0 < max(late) <= LATEST < int(LATENESS.split()[0]) * MINUTE


def test_the_end_moves_the_time_past_every_minute_and_not_past_the_clock(tmp_path: Path) -> None:
    lateness = int(LATENESS.split()[0]) * MINUTE
    since = beginning(20, SINCE + 59) + 20 * MINUTE
    close_orders(tmp_path, 20, since)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["00020.json", "00021.json"]
    (end,) = read(tmp_path / "00020.json")
    assert since + MINUTE <= end["ts"] - lateness + MINUTE <= SINCE
    # What comes after it by the clock is not too late.
    write_orders(tmp_path, 22, 100, SINCE - 2, 2)
    orders = read(tmp_path / "00022.json")
    assert end["ts"] - lateness < min(order["ts"] for order in orders)
    assert max(order["ts"] for order in orders) < SINCE
