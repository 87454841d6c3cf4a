from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decide.schedule import Schedule, ScheduleState, due, parse_duration, parse_every, show_duration
from holdfast.errors import BadValue

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("30 seconds", 30_000),
        ("1 second", 1_000),
        ("5 sec", 5_000),
        ("5m", 300_000),
        ("5 min", 300_000),
        ("5 minutes", 300_000),
        ("36h", 129_600_000),
        ("36 HOURS", 129_600_000),
        ("7d", 604_800_000),
        (" 7 days ", 604_800_000),
        ("2w", 1_209_600_000),
        ("2 weeks", 1_209_600_000),
        ("0s", 0),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "30", "s", "-5s", "1.5h", "5 parsecs", "5s 3m", "٣s", "5 months", "1000 events"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadValue, match="such as 90s"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**14))
def test_a_shown_duration_is_read_back_the_same(milliseconds: int) -> None:
    assert parse_duration(show_duration(milliseconds)) == milliseconds


def test_a_duration_is_shown_in_its_largest_whole_unit() -> None:
    assert [show_duration(ms) for ms in (0, 250, 90_000, 129_600_000, 604_800_000)] == [
        "0s",
        "250ms",
        "90s",
        "36h",
        "1w",
    ]


@pytest.mark.parametrize(
    ("every", "schedule"),
    [
        ("30 seconds", Schedule(every_ms=30_000)),
        ("30s", Schedule(every_ms=30_000)),
        ("1000 events", Schedule(every_events=1000)),
        ("1 event", Schedule(every_events=1)),
        ("10 batches", Schedule(every_events=10)),
        ("1batch", Schedule(every_events=1)),
        ("1000EVENTS", Schedule(every_events=1000)),
        (1000, Schedule(every_events=1000)),
    ],
)
def test_a_schedule_is_read_from_a_time_or_a_number_of_events(every: str | int, schedule: Schedule) -> None:
    assert parse_every(every) == schedule


@pytest.mark.parametrize("every", ["0s", "0 events", 0, -1, "often", "1000"])
def test_a_schedule_that_never_rests_or_says_nothing_is_refused(every: str | int) -> None:
    with pytest.raises(BadValue):
        parse_every(every)


def test_a_checkpoint_is_due_at_the_nth_event_and_not_before() -> None:
    schedule = Schedule(every_events=3)
    assert [due(schedule, ScheduleState(events, 0), 10**18) for events in range(5)] == [False, False, False, True, True]


def test_a_checkpoint_is_due_when_the_time_has_passed_and_not_before() -> None:
    schedule = parse_every("30s")
    state = ScheduleState(events_since=0, last_ns=100 * SECOND)
    assert not due(schedule, state, 130 * SECOND - 1)
    assert due(schedule, state, 130 * SECOND)


def test_with_both_rules_the_first_to_come_counts() -> None:
    schedule = Schedule(every_events=10, every_ms=1000)
    assert due(schedule, ScheduleState(10, 0), 1)
    assert due(schedule, ScheduleState(1, 0), SECOND)
    assert not due(schedule, ScheduleState(9, 0), SECOND - 1)


def test_without_a_rule_nothing_is_ever_due() -> None:
    assert not due(Schedule(), ScheduleState(10**9, 0), 10**18)


def test_a_clock_that_went_back_costs_one_early_checkpoint_and_never_blocks() -> None:
    schedule = parse_every("30s")
    now = 50 * SECOND
    assert due(schedule, ScheduleState(1, last_ns=10**9 * SECOND), now)
    restarted = ScheduleState(0, last_ns=now)
    assert not due(schedule, restarted, now + 1)
    assert due(schedule, restarted, now + 30 * SECOND)


clock = st.integers(min_value=-(10**18), max_value=10**18)


@given(st.integers(1, 10**6), clock, clock)
def test_whatever_the_clock_did_waiting_one_period_is_always_enough(every_ms: int, last_ns: int, now_ns: int) -> None:
    schedule = Schedule(every_ms=every_ms)
    state = ScheduleState(0, last_ns)
    assert due(schedule, state, now_ns) or due(schedule, state, now_ns + every_ms * 1_000_000)
