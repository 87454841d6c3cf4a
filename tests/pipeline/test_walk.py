"""The epoch protocol walked: a driver paused, killed or robbed of its directory at every step, and another takes over.

`make test` walks the hardest pair of sinks, `make soak` all of them, and two take-overs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pytest

from holdfast.decide import start
from holdfast.epochs import Holder, Link
from holdfast.errors import NotDeterministic
from holdfast.pipeline import takeover
from holdfast.pipeline.epoch import Epochs
from pipeline.model import Driver, Killed, Scene, rows_of

SINKS = {"all go back": {"a": True, "b": True}, "one is a log": {"a": True, "k": False}, "a log": {"k": False}}
HARDEST = "one is a log"
LAST = 4

each_kind = pytest.mark.parametrize(
    "kind", [HARDEST, *(pytest.param(kind, marks=pytest.mark.soak) for kind in SINKS if kind != HARDEST)]
)


def begun(kind: str) -> Scene:
    """A pipeline that has run two epochs, the first of which is captured."""
    scene = Scene(SINKS[kind])
    Driver(scene, 1, seed=5).run()
    return scene


def wrong(scene: Scene, driver: Driver) -> list[str]:
    """Sinks that do not hold each row once, in order, as far as the state."""
    end = driver.require_home().offsets[driver.last][1]
    return [name for name, held in scene.targets.items() if rows_of(held) != list(range(end))]


def check(scene: Scene, driver: Driver) -> None:
    assert driver.ended == "done"
    assert wrong(scene, driver) == []
    assert {held.marker.at.epoch for held in scene.targets.values() if held.marker} == {driver.last}


def stop_at(number: int, then: Callable[[], None]) -> tuple[Callable[[str], None], list[str]]:
    """A `reach` that does something at the n-th point, and the name of that point."""
    points, at = count(), [""]

    def reach(name: str) -> None:
        if next(points) == number:
            at[0] = name
            then()

    return reach, at


def die() -> None:
    raise Killed


def points_in(run: Callable[[Callable[[str], None]], None]) -> int:
    passed = [0]

    def reach(_name: str) -> None:
        passed[0] += 1

    run(reach)
    return passed[0]


def points_of_a_run(kind: str) -> int:
    return points_in(lambda reach: Driver(begun(kind), LAST, seed=2, reach=reach).run())


def take_over(scene: Scene, last: int, seed: int, note: str) -> Driver:
    taker = Driver(scene, last, seed=seed)
    try:
        taker.run()
        check(scene, taker)
    except BaseException as error:
        error.add_note(note)
        raise
    return taker


@pytest.mark.parametrize("kind", SINKS)
def test_an_uninterrupted_run_ends_with_every_row_once_and_goes_on(kind: str) -> None:
    scene = Scene(SINKS[kind])
    take_over(scene, LAST, 0, "")
    take_over(scene, LAST + 3, 1, "")


@pytest.mark.parametrize("lose", [False, True], ids=["directory kept", "directory lost"])
@each_kind
def test_a_driver_killed_at_any_step_is_taken_over(kind: str, lose: bool) -> None:
    for number in range(points_of_a_run(kind)):
        scene = begun(kind)
        reach, at = stop_at(number, die)
        with pytest.raises(Killed):
            Driver(scene, LAST, seed=2, reach=reach).run()
        if lose:
            scene.homes.clear()
        take_over(scene, LAST + 1, 3, f"killed at point {number}, {at[0]}")


@pytest.mark.parametrize("lose", [False, True], ids=["directory kept", "directory lost"])
@each_kind
def test_a_driver_paused_at_any_step_while_another_takes_over_changes_nothing(kind: str, lose: bool) -> None:
    for number in range(points_of_a_run(kind)):
        pause_at(kind, number, lose)


def pause_at(kind: str, number: int, lose: bool) -> None:
    scene = begun(kind)
    arrived, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        arrived.set()
        go_on.wait(60)

    reach, at = stop_at(number, pause)
    zombie = Driver(scene, LAST, seed=2, reach=reach)
    thread = threading.Thread(target=zombie.run, daemon=True)
    thread.start()
    assert arrived.wait(60)
    if lose:
        scene.homes.clear()
    taker = Driver(scene, LAST + 1, seed=3)
    try:
        taker.run()
    finally:
        go_on.set()
        thread.join(60)
    note = f"paused at point {number}, {at[0]}; the one that was paused: {zombie.ended}; the taker: {taker.ended}"
    # One that is paused before its claim takes the pipeline over itself when it goes on.
    assert zombie.ended in ("Fenced", "Lost", "done"), note
    assert taker.ended == "done", note
    take_over(scene, LAST + 2, 4, note)


@pytest.mark.soak
@pytest.mark.parametrize("kind", SINKS)
def test_two_killed_in_a_row_are_taken_over(kind: str) -> None:
    for first in range(0, points_of_a_run(kind), 5):
        for second in range(0, points_of_a_run(kind), 3):
            scene = begun(kind)
            for number, seed in ((first, 2), (second, 6)):
                with pytest.raises(Killed):
                    Driver(scene, LAST + 8, seed=seed, reach=stop_at(number, die)[0]).run()
                scene.homes.pop(min(scene.homes, default=-1), None)
            take_over(scene, LAST + 9, 3, f"killed at {first} and {second}")


def rewind_points() -> int:
    scene = begun("all go back")
    Driver(scene, LAST, seed=5).run()
    return points_in(lambda reach: Driver(scene, LAST, seed=6, reach=reach).run(rewind_to=2))


def test_a_rewind_killed_at_any_step_is_run_again() -> None:
    for number in range(rewind_points()):
        scene = begun("all go back")
        Driver(scene, LAST, seed=5).run()
        reach, at = stop_at(number, die)
        with pytest.raises(Killed):
            Driver(scene, LAST, seed=6, reach=reach).run(rewind_to=2)
        again = Driver(scene, LAST + 1, seed=7)
        again.run(rewind_to=2)
        check(scene, again)
        take_over(scene, LAST + 2, 8, f"killed at point {number}, {at[0]}")


# ---- queries that give other rows on a second run ----


def test_other_rows_take_the_place_of_the_first_where_every_sink_can_go_back() -> None:
    for number in range(points_of_a_run("all go back")):
        scene = begun("all go back")
        scene.random_rows = True
        with pytest.raises(Killed):
            Driver(scene, LAST, seed=2, reach=stop_at(number, die)[0]).run()
        taker = Driver(scene, LAST + 1, seed=3)
        taker.run()
        assert taker.ended == "done"
        first, second = (rows_of(held) for held in scene.targets.values())
        assert first == second, "never the rows of one run here and of another there"


def test_other_rows_are_found_out_where_a_sink_can_not_go_back() -> None:
    refused = 0
    for number in range(points_of_a_run(HARDEST)):
        scene = begun(HARDEST)
        scene.random_rows = True
        with pytest.raises(Killed):
            Driver(scene, LAST, seed=2, reach=stop_at(number, die)[0]).run()
        taker = Driver(scene, LAST + 1, seed=3)
        taker.run()
        if taker.ended == "done":
            first, second = (rows_of(held) for held in scene.targets.values())
            assert first == second
        else:
            assert NotDeterministic.code in taker.ended
            refused += 1
    assert refused, "some of the kills leave rows in the log that can't be taken back"


# ---- each rule broken ----


def fence_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sinks are fenced only after what they hold was read."""
    whole = takeover._Taking.fence

    def remember(self: Any, generation: int, token: str) -> None:
        self._holder = Holder(self._pipeline_id, generation, token)
        self._markers = {name: sink.look() for name, sink in self._sinks.items()}

    def settle(self: Any, generation: Any) -> Any:
        markers = dict(self._markers)
        whole(self, self._holder.generation, self._holder.token)
        self._markers = markers
        return done(self, generation)

    done = takeover._Taking.settle
    monkeypatch.setattr(takeover._Taking, "fence", remember)
    monkeypatch.setattr(takeover._Taking, "settle", settle)


def no_adoption(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided after the state is not taken up."""
    whole = start.plan_start

    def plan(state: Any, counted: Mapping[int, Any], sinks: Any, *, rewind: bool = False) -> Any:
        return whole(state, counted, sinks, rewind=True)

    monkeypatch.setattr(takeover, "plan_start", plan)


def local_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions stand beside Spark's directory alone."""
    whole = Epochs.__init__

    def init(self: Any, pipeline: Any, holder: Any, sinks: Any, ledgers: Any, *more: Any, **named: Any) -> None:
        whole(self, pipeline, holder, sinks, list(ledgers)[:1], *more, **named)

    monkeypatch.setattr(Epochs, "__init__", init)


def decide_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sinks commit before the decision stands."""

    def decide(self: Any, batch: Any, rows: Any, attempt: int) -> Any:
        ledgers, self._ledgers = self._ledgers, ()
        decision, rows = whole(self, batch, rows, attempt)
        self._commit(decision, rows)
        for ledger in ledgers:
            ledger.add(decision)
        self._ledgers = ledgers
        return decision, rows

    whole = Epochs._decide
    monkeypatch.setattr(Epochs, "_decide", decide)


@pytest.mark.parametrize("broken", [fence_late, no_adoption, local_ledger, decide_after])
def test_with_a_rule_broken_the_chain_in_the_sinks_stops_it_and_no_row_is_lost_or_doubled(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    points = points_of_a_run(HARDEST)
    broken(monkeypatch)
    stopped = 0
    for number in range(points):
        scene = begun(HARDEST)
        try:
            Driver(scene, LAST, seed=2, reach=stop_at(number, die)[0]).run()
        except Killed:
            scene.homes.clear()
        taker = Driver(scene, LAST + 1, seed=3)
        taker.run()
        stopped += taker.ended != "done"
        for held in scene.targets.values():
            rows = rows_of(held)
            assert rows == list(range(len(rows))), f"killed at point {number}"
    assert stopped or broken is fence_late, "the rule is needed"


def test_a_sink_that_was_emptied_is_told_before_anything_is_touched() -> None:
    scene = begun(HARDEST)
    scene.targets["a"].marker = None
    claims = len(Driver(scene, LAST).records.world().claims)
    driver = Driver(scene, LAST)
    driver.run()
    assert "made anew" in driver.ended
    assert len(driver.records.world().claims) == claims


def test_a_sink_that_is_new_begins_where_the_state_stands() -> None:
    scene = begun("all go back")
    later = Scene({"a": True, "b": True, "c": True}, scene.store, scene.homes, staged=scene.staged)
    later.targets |= {name: scene.targets[name] for name in ("a", "b")}
    driver = Driver(later, LAST, seed=3)
    driver.run()
    assert driver.ended == "done"
    whole = rows_of(later.targets["a"])
    assert rows_of(later.targets["c"]) == whole[-len(rows_of(later.targets["c"])) :]
    assert later.targets["c"].epochs[0][0].epoch == 2


def test_a_link_tells_itself() -> None:
    assert (str(Link()), str(Link(3, "x"))) == ("nothing", "epoch 3 at x")
