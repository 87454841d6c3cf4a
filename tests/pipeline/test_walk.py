"""The epoch protocol walked: a driver paused, killed or robbed of its directory at every step, and another takes over.

`make test` walks the hardest pair of sinks, `make soak` all of them, and two take-overs.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice, product
from typing import Any

import pytest

from holdfast.decide import start
from holdfast.decide.start import Known
from holdfast.epochs import EpochDecision, Holder, Link, Marker
from holdfast.errors import ChainBroken, NotDeterministic
from holdfast.pipeline import takeover
from holdfast.pipeline.epoch import Epochs
from holdfast.pipeline.takeover import Taken
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
        pause_at(begun(kind), number, lose)


def pause_at(
    scene: Scene, number: int, lose: bool, *, zombie_goes: int | None = None, taker_goes: int | None = None
) -> None:
    """Pause one at a step, have another take over and run, then let the first go on. Each may be a rewind."""
    zombie, taker, note = overtake(scene, number, lose, zombie_goes=zombie_goes, taker_goes=taker_goes)
    # One that is paused before its claim takes the pipeline over itself when it goes on.
    assert zombie.ended in ("Fenced", "Lost", "done"), note
    assert taker.ended == "done", note
    take_over(scene, LAST + 2, 4, note)


def overtake(
    scene: Scene,
    number: int,
    lose: bool,
    *,
    zombie_goes: int | None = None,
    taker_goes: int | None = None,
    last: int = LAST + 1,
    every: int = 2,
) -> tuple[Driver, Driver, str]:
    """The second cuts other batches than the first, and runs to an epoch; both capture every so many."""
    zombie = Paused(Driver(scene, LAST, seed=2, every=every), number, zombie_goes)
    if lose:
        scene.homes.clear()
    taker = Driver(scene, last, seed=5, every=every)
    try:
        taker.run(taker_goes)
    finally:
        zombie.wake()
    return zombie.driver, taker, f"{zombie}; the taker: {taker.ended}"


class Paused:
    """A driver that is paused at the n-th point of its run, until it is woken; it may have fewer."""

    def __init__(self, driver: Driver, number: int, goes: int | None = None) -> None:
        self.driver = driver
        self._arrived, self._go_on = threading.Event(), threading.Event()
        self._number = number
        reach, self._at = stop_at(number, self._pause)
        driver.reach_for(reach)
        self.thread = threading.Thread(target=self._run, args=(goes,), daemon=True)
        self.thread.start()
        assert self._arrived.wait(60)

    def wake(self) -> None:
        """Have it go on to its end."""
        self._go_on.set()
        self.thread.join(60)
        assert not self.thread.is_alive()

    def _pause(self) -> None:
        self._arrived.set()
        self._go_on.wait(60)

    def _run(self, goes: int | None) -> None:
        try:
            self.driver.run(goes)
        finally:
            self._arrived.set()

    def __str__(self) -> str:
        return f"paused at point {self._number}, {self._at[0]}, it ended as {self.driver.ended!r}"


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", SINKS)
def test_two_killed_in_a_row_are_taken_over(kind: str) -> None:
    points = points_of_a_run(kind)
    for first, second in product(range(points), repeat=2):
        scene = begun(kind)
        for number, seed in ((first, 2), (second, 6)):
            with pytest.raises(Killed):
                Driver(scene, LAST + 8, seed=seed, reach=stop_at(number, die)[0]).run()
            scene.homes.pop(min(scene.homes, default=-1), None)
        take_over(scene, LAST + 9, 3, f"killed at {first} and {second}")


ALL_OF_TWO, SOME_OF_TWO = 13, 401
"""There are some 90,000 ways for two to be paused: the soaks walk one in so many, `make test` very few. Both are primes
that divide no number of points, so each point comes up, with each of the rest.
"""


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("kind", "stride"),
    [(HARDEST, SOME_OF_TWO), *(pytest.param(kind, ALL_OF_TWO, marks=pytest.mark.soak) for kind in SINKS)],
)
def test_of_two_that_are_paused_one_after_the_other_the_overtaken_change_nothing_whoever_wakes_first(
    kind: str, stride: int
) -> None:
    points = points_of_a_run(kind)
    ways = product(range(points), range(points), *[(False, True)] * 3)
    for first, second, third, lose, later_wakes_first in islice(ways, 0, None, stride):
        scene = begun(kind)
        zombies = [Paused(Driver(scene, LAST, seed=2), first)]
        if lose:
            scene.homes.clear()
        zombies.append(Paused(Driver(scene, LAST + 2, seed=5), second))
        if third:
            take_over(scene, LAST + 4, 6, f"while two are paused at points {first} and {second}")
        for zombie in reversed(zombies) if later_wakes_first else zombies:
            zombie.wake()
        note = " and ".join(map(str, zombies)) + (", woken the later one first" if later_wakes_first else "")
        # One that is paused before its claim takes the pipeline over itself when it goes on.
        ends = {zombie.driver.ended for zombie in zombies}
        assert ends <= {"Fenced", "Lost", "done"}, note
        assert third or "done" in ends, f"nobody fences the newest: {note}"
        take_over(scene, LAST + 6, 4, note)


# ---- rewinds ----

SOME = 6
"""`make test` walks so many steps of a rewind, `make soak` each."""

each_or_some = pytest.mark.parametrize("every", [SOME, pytest.param(1, marks=pytest.mark.soak)], ids=["some", "each"])
kept_or_lost = pytest.mark.parametrize("lose", [False, True], ids=["directory kept", "directory lost"])


def gone_far() -> Scene:
    """A pipeline that has run to its end, to be taken back."""
    scene = begun("all go back")
    Driver(scene, LAST, seed=5).run()
    return scene


def points_of(goes: int | None) -> int:
    """The steps of a run from there, or of a rewind."""
    return points_in(lambda reach: Driver(gone_far(), LAST, seed=2, reach=reach).run(goes))


@kept_or_lost
def test_a_rewind_killed_at_any_step_is_run_again(lose: bool) -> None:
    for number in range(points_of(2)):
        scene = gone_far()
        reach, at = stop_at(number, die)
        with pytest.raises(Killed):
            Driver(scene, LAST, seed=2, reach=reach).run(rewind_to=2)
        if lose:
            scene.homes.clear()
        again = Driver(scene, LAST + 1, seed=7)
        again.run(rewind_to=2)
        check(scene, again)
        take_over(scene, LAST + 2, 8, f"killed at point {number}, {at[0]}")


@kept_or_lost
@each_or_some
def test_a_driver_paused_at_a_step_while_a_rewind_takes_over_changes_nothing(every: int, lose: bool) -> None:
    for number in range(0, points_of_a_run("all go back"), every):
        pause_at(begun("all go back"), number, lose, taker_goes=0)


@kept_or_lost
@each_or_some
def test_a_rewind_paused_at_a_step_while_another_takes_over_changes_nothing(every: int, lose: bool) -> None:
    for number in range(0, points_of(2), every):
        pause_at(gone_far(), number, lose, zombie_goes=2)


@kept_or_lost
@each_or_some
def test_of_two_rewinds_the_one_that_is_overtaken_changes_nothing(every: int, lose: bool) -> None:
    for number in range(0, points_of(2), every):
        pause_at(gone_far(), number, lose, zombie_goes=2, taker_goes=0)


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
        assert other_than_state(scene, taker) == [], f"killed at point {number}"


def other_than_state(scene: Scene, driver: Driver) -> list[str]:
    """Sinks that do not hold the very rows that are in the state, which may be of a second run."""
    state = driver.require_home().state
    counted = [row for epoch in sorted(state) for row in state[epoch]]
    return [name for name, held in scene.targets.items() if rows_of(held) != counted]


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
            assert other_than_state(scene, taker) == [], f"killed at point {number}"
        else:
            assert NotDeterministic.code in taker.ended
            refused += 1
    assert refused, "some of the kills leave rows in the log that can't be taken back"


# ---- each rule broken ----


def fence_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sinks are fenced only after what they hold was read, and the one before goes on in between."""
    whole = takeover._Taking.fence

    def remember(self: Any, generation: int, token: str) -> None:
        self._holder = Holder(self.pipeline_id, generation, token)
        self._markers = {name: sink.look() for name, sink in self._sinks.items()}

    def settle(self: Any, generation: Any) -> Any:
        markers = dict(self._markers)
        IN_BETWEEN[0]()
        whole(self, self._holder.generation, self._holder.token)
        self._markers = markers
        return done(self, generation)

    done = takeover._Taking.settle
    monkeypatch.setattr(takeover._Taking, "fence", remember)
    monkeypatch.setattr(takeover._Taking, "settle", settle)


IN_BETWEEN: list[Callable[[], None]] = [lambda: None]
"""What happens after the look of one that fences late, and before its fence."""


def free_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided is cut anew, and nobody compares the boundaries."""
    whole, epoch_of = Epochs.__init__, Driver._epoch

    def init(self: Any, *given: Any, **named: Any) -> None:
        whole(self, *given[:5], {}, *given[6:], **named)

    def run(self: Driver, epochs: Epochs, taken: Taken, epoch: int) -> None:
        epoch_of(self, epochs, dataclasses.replace(taken, decided={}), epoch)

    monkeypatch.setattr(Epochs, "__init__", init)
    monkeypatch.setattr(Driver, "_epoch", run)


def by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision is known by the number of its epoch, whoever made it, and so is what a sink holds."""

    def count(_world: Any, decisions: Sequence[EpochDecision], _generation: Any = None) -> Any:
        found: dict[int, list[EpochDecision]] = {}
        for decision in sorted(decisions, key=lambda decision: decision.generation):
            found.setdefault(decision.epoch, []).append(decision)
        return found

    def is_ahead(state: Known, _counted: Any, adopted: int, marker: Marker) -> bool:
        return state.at.epoch < marker.at.epoch <= adopted

    monkeypatch.setattr(takeover, "decisions_that_count", count)
    monkeypatch.setattr(start, "_is_ahead", is_ahead)


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

    def decide(self: Any, batch: Any, rows: Any, *more: Any) -> Any:
        ledgers, self._ledgers = self._ledgers, ()
        decision, rows = whole(self, batch, rows, *more)
        self._commit(decision, rows)
        for ledger in ledgers:
            ledger.add(decision)
        self._ledgers = ledgers
        return decision, rows

    whole = Epochs._decide
    monkeypatch.setattr(Epochs, "_decide", decide)


def kill_and_take_over(kind: str, number: int) -> tuple[Scene, Driver]:
    """One dies at a step, with its directory."""
    scene = begun(kind)
    try:
        Driver(scene, LAST, seed=2, reach=stop_at(number, die)[0]).run()
    except Killed:
        scene.homes.clear()
    taker = Driver(scene, LAST + 1, seed=3)
    taker.run()
    return scene, taker


def let_go_on_in_between(kind: str, number: int) -> tuple[Scene, Driver]:
    """One is paused at a step, and goes on between the look of another and its fence."""
    scene = begun(kind)
    zombie = Paused(Driver(scene, LAST, seed=2), number)

    def go() -> None:
        if threading.current_thread() is not zombie.thread:
            zombie.wake()

    IN_BETWEEN[0] = go
    taker = Driver(scene, LAST + 1, seed=3)
    try:
        taker.run()
    finally:
        IN_BETWEEN[0] = lambda: None
        go()
    return scene, taker


def decide_late_and_take_over(kind: str, number: int) -> tuple[Scene, Driver]:
    """One is overtaken, and what it decides after that stands in the ledger when a third takes over."""
    scene = begun(kind)
    overtake(scene, number, False, last=LAST, every=100)
    scene.homes.clear()
    third = Driver(scene, LAST + 3, seed=4)
    third.run()
    return scene, third


Broken = Callable[[pytest.MonkeyPatch], None]
Walked = Callable[[str, int], tuple[Scene, Driver]]

BROKEN: list[tuple[Broken, Walked, str, bool]] = [
    (no_adoption, kill_and_take_over, HARDEST, False),
    (local_ledger, kill_and_take_over, HARDEST, False),
    (decide_after, kill_and_take_over, HARDEST, False),
    (free_replay, kill_and_take_over, HARDEST, True),
    (by_number, decide_late_and_take_over, HARDEST, True),
    (fence_late, let_go_on_in_between, "all go back", True),
]
"""A rule, what shows that it is needed, with which sinks, and whether nothing above the sinks notices it."""


@pytest.mark.parametrize(
    ("broken", "walked", "kind", "unnoticed"), BROKEN, ids=[broken.__name__ for broken, _, _, _ in BROKEN]
)
def test_with_a_rule_broken_it_is_stopped_at_the_latest_by_the_chain_in_the_sinks(
    broken: Broken, walked: Walked, kind: str, unnoticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is lost or doubled in any sink."""
    points = points_of_a_run(kind)
    broken(monkeypatch)
    ends = []
    for number in range(points):
        scene, last = walked(kind, number)
        ends.append(last.ended)
        for held in scene.targets.values():
            rows = rows_of(held)
            assert rows == list(range(len(rows))), f"at point {number}: {last.ended}"
    assert any(end != "done" for end in ends), "the rule is needed"
    if unnoticed:
        assert any(ChainBroken.code in end for end in ends), set(ends)


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
