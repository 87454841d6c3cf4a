"""`holdfast demo` with its first scene alone and a verdict made up: as a program, with all else as it is."""

from __future__ import annotations

import sys
import time

from holdfast.cli import main
from holdfast.demo.messages import Checkpointed, Committed, Start
from holdfast.demo.orders import beginning, write_orders
from holdfast.demo.place import Judged
from holdfast.demo.play import Costs, Outcome, Play, Recovered
from holdfast.handles import open_url

__all__ = ["outcome"]

FILES = 3


def outcome(*, lost: int = 0, doubled: int = 0, counted: int = 10) -> Outcome:
    """How a performance may have ended."""
    landed = Checkpointed("0-1", 2, 1024, 4096, 0.05)
    took = Recovered(9.0, 7.5)
    costs = Costs(6, took, took, 5, 0.5, [landed], 100, 60.0)
    return Outcome({"duckdb": Judged(3, 10, 0, 0), "delta": Judged(3, 10, lost, doubled)}, 10, counted, costs)


def perform(play: Play) -> Outcome:
    open_url(str(play._place.repository), create=True)
    since = beginning(FILES, time.time())
    for number in range(FILES):
        write_orders(play._place.orders, number, 200, since + number * 60)
    play.show.scene("run", "A few orders are summed up.")
    driver = play._next_driver()
    driver.do(Start())
    driver.until(Committed, lambda heard: heard.epoch == FILES - 1)
    play._stop()
    return outcome()


if __name__ == "__main__":
    Play.perform = perform  # type: ignore[method-assign]
    sys.argv[0:1] = ["holdfast", "demo"]
    main()
