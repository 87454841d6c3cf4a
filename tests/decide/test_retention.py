from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decide.retention import Candidate, KeepPolicy, Verdict, retain
from holdfast.errors import BadValue
from holdfast.layout import Slot

HOUR = 3_600_000
DAY = 24 * HOUR
MONDAY = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp() * 1000)


def timeline(*timestamps: int) -> list[Candidate]:
    return [Candidate(Slot(0, number), timestamp) for number, timestamp in enumerate(timestamps)]


def every(step: int, count: int, newest: int = MONDAY) -> list[Candidate]:
    return timeline(*(newest - step * back for back in reversed(range(count))))


def kept(candidates: Sequence[Candidate], policy: KeepPolicy) -> list[int]:
    return [verdict.candidate.slot.number for verdict in retain(candidates, policy) if verdict.keep]


def reasons(candidates: Sequence[Candidate], policy: KeepPolicy, number: int) -> tuple[str, ...]:
    return next(v.reasons for v in retain(candidates, policy) if v.candidate.slot.number == number)


def test_an_empty_policy_keeps_everything_and_says_so() -> None:
    candidates = [*every(DAY, 5), Candidate(Slot(9, 9), 0, on_timeline=False)]
    verdicts = retain(candidates, KeepPolicy())
    assert all(verdict.keep and verdict.reasons[-1] == "no rule given" for verdict in verdicts)
    assert [verdict.candidate for verdict in verdicts] == candidates


def test_nothing_to_judge_gives_no_verdicts() -> None:
    assert retain([], KeepPolicy(last=3)) == []


def test_last_keeps_the_newest_of_the_timeline() -> None:
    assert kept(every(DAY, 10), KeepPolicy(last=4)) == [6, 7, 8, 9]
    assert reasons(every(DAY, 10), KeepPolicy(last=4), 7) == ("last 4",)


def test_the_last_two_are_kept_even_when_one_is_asked_for() -> None:
    assert kept(every(DAY, 10), KeepPolicy(last=1)) == [8, 9]
    assert reasons(every(DAY, 10), KeepPolicy(last=1), 9) == ("newest of the timeline", "last 1")
    assert reasons(every(DAY, 10), KeepPolicy(last=1), 8) == ("last two of the timeline",)


def test_what_no_rule_keeps_is_dropped_with_that_reason() -> None:
    assert retain(every(DAY, 3), KeepPolicy(last=2))[0] == Verdict(every(DAY, 3)[0], False, ("no rule keeps it",))


def test_hourly_keeps_the_newest_of_each_of_the_latest_hours() -> None:
    candidates = every(HOUR // 4, 16, newest=MONDAY + HOUR // 2)  # the newest hour holds three, those before four each
    assert kept(candidates, KeepPolicy(hourly=3)) == [8, 12, 14, 15]
    assert reasons(candidates, KeepPolicy(hourly=3), 8) == ("hourly 2026-11-16 10h",)


def test_daily_counts_only_days_that_have_a_checkpoint() -> None:
    candidates = timeline(MONDAY - 40 * DAY, MONDAY - 9 * DAY, MONDAY - 9 * DAY + 1, MONDAY - DAY, MONDAY)
    assert kept(candidates, KeepPolicy(daily=3)) == [2, 3, 4]
    assert reasons(candidates, KeepPolicy(daily=3), 2) == ("daily 2026-11-07",)


def test_weeks_are_iso_weeks_over_the_turn_of_the_year() -> None:
    friday = int(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1000)
    candidates = every(DAY, 12, newest=friday)  # the week 2026-W53 runs from 28 December to 3 January
    assert kept(candidates, KeepPolicy(weekly=2)) == [6, 10, 11]
    assert reasons(candidates, KeepPolicy(weekly=2), 11)[-1] == "weekly 2026-W53"
    assert reasons(candidates, KeepPolicy(weekly=2), 6) == ("weekly 2026-W52",)


def test_months_are_calendar_months_in_utc() -> None:
    new_year = int(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1000)
    candidates = timeline(new_year - 62 * DAY, new_year - 2, new_year - 1, new_year)
    assert kept(candidates, KeepPolicy(monthly=3)) == [0, 2, 3]
    assert reasons(candidates, KeepPolicy(monthly=3), 0) == ("monthly 2026-10",)


def test_within_is_measured_back_from_the_newest_and_not_from_now() -> None:
    candidates = every(HOUR, 10, newest=0)  # 1970
    assert kept(candidates, KeepPolicy(within_ms=3 * HOUR)) == [6, 7, 8, 9]
    assert reasons(candidates, KeepPolicy(within_ms=3 * HOUR), 6) == ("within 3h of the newest",)


def test_within_starts_at_the_newest_by_position_even_when_others_claim_to_be_younger() -> None:
    candidates = timeline(MONDAY - 2 * DAY, MONDAY - HOUR, MONDAY + 90 * DAY, MONDAY + 90 * DAY, MONDAY)
    assert kept(candidates, KeepPolicy(within_ms=DAY)) == [1, 2, 3, 4]


def test_rules_add_up_and_every_reason_is_given() -> None:
    candidates = every(DAY, 10)
    assert kept(candidates, KeepPolicy(last=3, weekly=2, within_ms=DAY)) == [7, 8, 9]
    assert reasons(candidates, KeepPolicy(last=3, weekly=2, within_ms=DAY), 8) == (
        "last two of the timeline",
        "last 3",
        "weekly 2026-W46",
        "within 1d of the newest",
    )


def test_savepoints_pins_and_the_base_are_kept_under_any_policy() -> None:
    plain, savepoint, pinned, base, *newest = every(DAY, 6)
    candidates = [
        plain,
        replace(savepoint, savepoints=("before-upgrade", "v1")),
        replace(pinned, pins=("audit",)),
        replace(base, base_of_newest=True),
        *newest,
    ]
    assert kept(candidates, KeepPolicy(last=1)) == [1, 2, 3, 4, 5]
    assert reasons(candidates, KeepPolicy(last=1), 1) == ("savepoint before-upgrade", "savepoint v1")
    assert reasons(candidates, KeepPolicy(last=1), 2) == ("pin audit",)
    assert reasons(candidates, KeepPolicy(last=1), 3) == ("base of the newest generation",)


def test_a_clock_that_went_back_does_not_cost_the_newest() -> None:
    candidates = timeline(MONDAY, MONDAY + DAY, MONDAY - 400 * DAY)
    assert kept(candidates, KeepPolicy(last=1)) == [1, 2]
    assert kept(candidates, KeepPolicy(daily=1)) == [1, 2]
    assert reasons(candidates, KeepPolicy(daily=1), 2) == ("newest of the timeline", "daily 2025-10-12")


def test_a_day_that_comes_up_twice_through_a_bad_clock_counts_once() -> None:
    candidates = timeline(MONDAY - 2 * DAY, MONDAY, MONDAY - DAY, MONDAY)
    assert kept(candidates, KeepPolicy(daily=2)) == [2, 3]
    assert kept(candidates, KeepPolicy(daily=3)) == [0, 2, 3]


def test_a_clock_outside_the_calendar_still_gets_a_verdict() -> None:
    candidates = timeline(-(10**18), 10**18, MONDAY, MONDAY)
    assert kept(candidates, KeepPolicy(hourly=3, daily=3, weekly=3, monthly=3)) == [0, 1, 2, 3]
    assert kept(candidates, KeepPolicy(monthly=2)) == [1, 2, 3]


def test_an_abandoned_checkpoint_is_dropped_as_such_however_new_it_is() -> None:
    abandoned = Candidate(Slot(1, 99), MONDAY + DAY, on_timeline=False)
    candidates = [*every(DAY, 4), abandoned]
    policy = KeepPolicy(last=50, hourly=50, daily=50, weekly=50, monthly=50)
    assert retain(candidates, policy)[-1] == Verdict(abandoned, False, ("abandoned",))
    assert retain(candidates, policy)[3].reasons[0] == "newest of the timeline"


@pytest.mark.parametrize("held", [{"savepoints": ("v1",)}, {"pins": ("audit",)}, {"base_of_newest": True}])
def test_an_abandoned_checkpoint_is_kept_when_something_holds_it(held: dict[str, tuple[str, ...]]) -> None:
    abandoned = replace(Candidate(Slot(1, 99), 0, on_timeline=False), **held)
    assert kept([abandoned, *every(DAY, 4)], KeepPolicy(last=1)) == [99, 2, 3]


def test_an_abandoned_checkpoint_is_kept_within_the_time_asked_for() -> None:
    young = Candidate(Slot(1, 98), MONDAY - HOUR, on_timeline=False)
    old = Candidate(Slot(1, 99), MONDAY - 5 * HOUR, on_timeline=False)
    assert kept([old, young, *every(DAY, 4)], KeepPolicy(within_ms=2 * HOUR)) == [98, 2, 3]


def test_with_no_timeline_to_measure_from_within_keeps_all() -> None:
    abandoned = [Candidate(Slot(0, number), number * DAY, on_timeline=False) for number in range(3)]
    assert kept(abandoned, KeepPolicy(within_ms=1)) == [0, 1, 2]
    assert kept(abandoned, KeepPolicy(last=10)) == []


@pytest.mark.parametrize("rule", ["last", "hourly", "daily", "weekly", "monthly", "within_ms"])
def test_a_negative_rule_is_refused_by_name(rule: str) -> None:
    with pytest.raises(BadValue, match=rule):
        KeepPolicy(**{rule: -1})


@st.composite
def candidate_lists(draw: st.DrawFn) -> list[Candidate]:
    bodies = draw(
        st.lists(
            st.builds(
                dict,
                timestamp_ms=st.integers(0, 90 * 24).map(lambda hours: MONDAY + hours * HOUR // 3)
                | st.integers(-(10**17), 10**17),
                on_timeline=st.sampled_from([True, True, True, False]),
                savepoints=st.sampled_from([(), (), (), ("v1",)]),
                pins=st.sampled_from([(), (), (), ("audit",)]),
                base_of_newest=st.sampled_from([False, False, False, True]),
            ),
            max_size=30,
        )
    )
    return [Candidate(Slot(0, number), **body) for number, body in enumerate(bodies)]


policies = st.builds(
    KeepPolicy,
    last=st.integers(0, 8),
    hourly=st.integers(0, 8),
    daily=st.integers(0, 8),
    weekly=st.integers(0, 4),
    monthly=st.integers(0, 4),
    within_ms=st.sampled_from([0, 1, HOUR, 20 * HOUR, 9 * DAY]),
)


def held(candidate: Candidate) -> bool:
    return bool(candidate.savepoints or candidate.pins or candidate.base_of_newest)


@given(candidate_lists(), policies)
def test_the_last_two_of_the_timeline_and_all_that_is_held_always_stay(
    candidates: list[Candidate], policy: KeepPolicy
) -> None:
    keeps = {verdict.candidate.slot for verdict in retain(candidates, policy) if verdict.keep}
    assert {c.slot for c in [c for c in candidates if c.on_timeline][-2:]} <= keeps
    assert {c.slot for c in candidates if held(c)} <= keeps


@given(candidate_lists(), policies)
def test_every_verdict_has_a_reason_and_stands_in_its_place(candidates: list[Candidate], policy: KeepPolicy) -> None:
    verdicts = retain(candidates, policy)
    assert [verdict.candidate for verdict in verdicts] == candidates
    assert all(verdict.reasons for verdict in verdicts)


@given(candidate_lists(), policies, policies)
def test_a_more_generous_policy_keeps_at_least_as_much(
    candidates: list[Candidate], policy: KeepPolicy, more: KeepPolicy
) -> None:
    generous = KeepPolicy(*(a + b for a, b in zip(astuple(policy), astuple(more), strict=True)))
    if not policy.empty:  # the empty one keeps everything, so it alone is no lower bound
        assert set(kept(candidates, policy)) <= set(kept(candidates, generous))


@given(candidate_lists(), policies)
def test_what_was_kept_is_judged_the_same_when_asked_again(candidates: list[Candidate], policy: KeepPolicy) -> None:
    first = [verdict for verdict in retain(candidates, policy) if verdict.keep]
    assert retain([verdict.candidate for verdict in first], policy) == first


@given(candidate_lists(), st.integers(1, 10))
def test_last_n_keeps_exactly_n_but_at_least_two_and_what_is_held(candidates: list[Candidate], n: int) -> None:
    newest = [c.slot.number for c in candidates if c.on_timeline][-max(n, 2) :]
    assert set(kept(candidates, KeepPolicy(last=n))) == {*newest, *(c.slot.number for c in candidates if held(c))}


@given(candidate_lists(), policies)
def test_where_abandoned_ones_stand_makes_no_difference(candidates: list[Candidate], policy: KeepPolicy) -> None:
    moved = [c for c in candidates if not c.on_timeline] + [c for c in candidates if c.on_timeline]
    assert sorted(map(repr, retain(moved, policy))) == sorted(map(repr, retain(candidates, policy)))


@given(candidate_lists(), policies)
def test_the_same_question_has_the_same_answer(candidates: list[Candidate], policy: KeepPolicy) -> None:
    assert retain(tuple(candidates), policy) == retain(list(candidates), replace(policy))
