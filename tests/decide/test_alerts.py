"""Which alerts hold, since when, and what a receiver is still to be told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decide.alerts import (
    Alert,
    CaptureFacts,
    Facts,
    Judgement,
    Message,
    Newest,
    Rules,
    Standing,
    Told,
    UpkeepFacts,
    WayBack,
    after_telling,
    due,
    judge,
    retry_seconds,
    stand,
)

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 1_800_000_000_000
ALL = Rules(checkpoint_age_ms=10 * MINUTE, retention_ms=2 * DAY)
FINE = Facts(
    "orders",
    since_ms=NOW - DAY,
    newest=Newest("0-7", 41, NOW - MINUTE),
    looked=True,
    capture=CaptureFacts(failing=0, lag=1),
    damage=(),
    ways_back=[WayBack("before-upgrade"), WayBack("the newest")],
    upkeep={"check": UpkeepFacts(0, "")},
)


def holding(facts: Facts, rules: Rules = ALL, now_ms: int = NOW) -> dict[str, str]:
    return {key: alert.summary for key, alert in judge([(facts, rules)], now_ms).holding.items()}


# ---- judging ----


def test_a_pipeline_that_is_well_raises_nothing_and_everything_is_known() -> None:
    judgement = judge([(FINE, ALL)], NOW)
    assert judgement.holding == {}
    assert judgement.known == {
        "checkpoint-age/orders",
        "capture/orders",
        "upkeep/orders/check",
        "damage/orders",
        "way-back/orders",
        "retention/orders",
    }


@pytest.mark.parametrize(
    ("facts", "key", "said"),
    [
        (replace(FINE, newest=Newest("0-7", 41, NOW - HOUR)), "checkpoint-age/orders", "(0-7, epoch 41) is 60 min old"),
        (replace(FINE, newest=None), "checkpoint-age/orders", "orders has no checkpoint, 24 h after"),
        (
            replace(FINE, newest=Newest("0-7", 41, NOW - HOUR), looked=False, unseen="no route"),
            "checkpoint-age/orders",
            "can't be looked at: no route",
        ),
        (replace(FINE, capture=CaptureFacts(3, "disk full")), "capture/orders", "3 captures of orders in a row"),
        (replace(FINE, capture=CaptureFacts(None, "another query", refused=True)), "capture/orders", "another query"),
        (replace(FINE, damage=["a: gone"]), "damage/orders", "orders is damaged: a: gone"),
        (replace(FINE, damage=["a", "b", "c", "d", "e"]), "damage/orders", "a; b; c, and 2 more"),
        (
            replace(FINE, ways_back=[WayBack("v1", stuck={"table": "vacuumed"}), WayBack("v2", stuck={"table": "x"})]),
            "way-back/orders/table",
            "the sink table of orders can't go back to v1, v2 any more: vacuumed",
        ),
        (replace(FINE, ways_back=[WayBack("v1", until_ms=NOW + DAY)]), "retention/orders", "in 24 h the sources begin"),
        (replace(FINE, ways_back=[WayBack("v1", gone=["2 records"])]), "retention/orders", "v1 (2 records) is gone"),
        (
            replace(FINE, upkeep={"prune": UpkeepFacts(3, "denied")}),
            "upkeep/orders/prune",
            "the prune of orders",
        ),
    ],
)
def test_each_rule_finds_its_own_and_nothing_else(facts: Facts, key: str, said: str) -> None:
    found = holding(facts)
    assert set(found) == {key}
    assert said in found[key]


@pytest.mark.parametrize(
    "facts",
    [
        replace(FINE, newest=Newest("0-7", 41, NOW - 10 * MINUTE + 1)),
        replace(FINE, capture=CaptureFacts(2, "disk full")),
        replace(FINE, ways_back=[WayBack("v1", until_ms=NOW + 2 * DAY)]),
        replace(FINE, ways_back=[WayBack("v1", until_ms=None)]),
        replace(FINE, upkeep={"prune": UpkeepFacts(2, "denied")}),
    ],
)
def test_nothing_is_raised_just_before_its_limit(facts: Facts) -> None:
    assert holding(facts) == {}


def test_an_idle_query_has_no_checkpoint_that_is_too_old_where_that_was_said() -> None:
    idle = replace(FINE, newest=Newest("0-7", 41, NOW - HOUR), capture=CaptureFacts(0, lag=0))
    assert "nothing was committed since" in holding(idle)["checkpoint-age/orders"]
    assert holding(idle, replace(ALL, idle=False)) == {}
    behind = replace(idle, capture=CaptureFacts(0, lag=3))
    assert "3 batches were committed since" in holding(behind, replace(ALL, idle=False))["checkpoint-age/orders"]


def test_what_is_switched_off_is_neither_found_nor_asked() -> None:
    off = Rules(capture_failures=None, damage=False, way_back=False)
    bad = replace(FINE, damage=["gone"], capture=CaptureFacts(9, "x"), ways_back=[WayBack("v", {"s": "x"}, ["g"], 0)])
    assert judge([(bad, off)], NOW) == Judgement({}, frozenset(), frozenset())


def test_what_nobody_has_looked_at_yet_is_not_known() -> None:
    judgement = judge([(Facts("orders", NOW - DAY, capture=CaptureFacts()), ALL)], NOW)
    assert (judgement.holding, judgement.known) == ({}, frozenset())
    assert judgement.asked is not None
    assert ("damage", "orders") in judgement.asked


# ---- since when ----

DAMAGED = Alert("damage", "orders", "gone", "")
STANDS = {DAMAGED.key: Standing(DAMAGED, NOW - HOUR)}


def test_what_still_holds_keeps_its_beginning_and_tells_what_is_known_now() -> None:
    worse = replace(DAMAGED, summary="worse")
    after = stand(STANDS, Judgement({worse.key: worse}, frozenset({worse.key}), None), NOW)
    assert after == {worse.key: Standing(worse, NOW - HOUR)}


def test_what_was_looked_at_and_is_well_goes() -> None:
    assert stand(STANDS, judge([(FINE, ALL)], NOW), NOW) == {}


def test_what_nobody_has_looked_at_since_stays() -> None:
    unknown = replace(FINE, damage=None)
    assert stand(STANDS, judge([(unknown, ALL)], NOW), NOW) == STANDS


def test_a_pipeline_that_is_not_asked_about_any_more_goes_once_all_are_known() -> None:
    other = replace(FINE, pipeline="clicks")
    assert stand(STANDS, judge([(other, ALL)], NOW, complete=False), NOW) == STANDS
    assert stand(STANDS, judge([(other, ALL)], NOW), NOW) == {}


def test_one_kind_of_upkeep_that_is_well_says_nothing_of_another() -> None:
    prune = Alert("upkeep", "orders", "failed", "", "prune")
    before = {prune.key: Standing(prune, NOW - HOUR)}
    assert stand(before, judge([(FINE, ALL)], NOW), NOW) == before
    well = replace(FINE, upkeep={"prune": UpkeepFacts(0, "")})
    assert stand(before, judge([(well, ALL)], NOW), NOW) == {}


# ---- telling ----


def statuses(messages: list[Message]) -> list[str]:
    return [f"{message.status} {message.times}" for message in messages]


def test_an_alert_is_told_once_then_that_it_is_over_once() -> None:
    told: dict[str, Told] = {}
    [message] = due(told, STANDS, NOW)
    assert (message.status, message.since_ms) == ("firing", NOW - HOUR)
    told = after_telling(told, message, NOW)
    assert due(told, STANDS, NOW + DAY) == []
    [message] = due(told, {}, NOW + DAY)
    assert (message.status, message.alert) == ("resolved", DAMAGED)
    assert due(after_telling(told, message, NOW + DAY), {}, NOW + 2 * DAY) == []


def test_an_alert_is_told_again_only_after_the_time_that_was_asked_for() -> None:
    told = after_telling({}, due({}, STANDS, NOW)[0], NOW)
    assert due(told, STANDS, NOW + HOUR - 1, HOUR) == []
    assert statuses(due(told, STANDS, NOW + HOUR, HOUR)) == ["firing 2"]
    assert statuses(due(told, STANDS, NOW - 1, HOUR)) == ["firing 2"], "a clock that went back must not silence it"


def test_what_was_over_and_came_again_meanwhile_is_told_as_both() -> None:
    told = after_telling({}, due({}, STANDS, NOW)[0], NOW)
    again = {DAMAGED.key: Standing(DAMAGED, NOW + HOUR)}
    first, second = due(told, again, NOW + HOUR)
    assert [first.status, second.status] == ["resolved", "firing"]
    assert due(after_telling(after_telling(told, first, NOW), second, NOW), again, NOW + HOUR) == []


def test_what_came_and_went_untold_is_not_told() -> None:
    assert due({}, stand(STANDS, judge([(FINE, ALL)], NOW), NOW), NOW) == []


KEYS = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.tuples(st.frozensets(KEYS), st.booleans()), max_size=20))
def test_whatever_comes_and_goes_a_receiver_ends_with_what_holds_and_hears_each_change_once(
    steps: list[tuple[frozenset[str], bool]],
) -> None:
    """`steps`: which alerts are found, and whether the receiver takes messages then."""
    standing: dict[str, Standing] = {}
    told: dict[str, Told] = {}
    heard: dict[str, str] = {}
    for now, (found, takes) in enumerate([*steps, (frozenset("a"), True)]):
        alerts = {f"damage/{name}": Alert("damage", name, "", "") for name in found}
        known = frozenset(f"damage/{name}" for name in "abc")
        standing = stand(standing, Judgement(alerts, known, None), now)
        for message in due(told, standing, now) if takes else ():
            assert heard.get(message.alert.key, "resolved") != message.status
            heard[message.alert.key] = message.status
            told = after_telling(told, message, now)
        if takes:
            assert {key for key, status in heard.items() if status == "firing"} == set(standing)
            assert due(told, standing, now) == []


def test_a_receiver_that_fails_is_left_alone_for_longer_each_time_up_to_five_minutes() -> None:
    assert [retry_seconds(n) for n in (1, 2, 3, 9, 10, 1000)] == [1, 2, 4, 256, 300, 300]
