from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decide.health import STATUSES, Vitals, judge, usual_interval

NOW = 1_763_000_000_000
MINUTE = 60_000
WELL = Vitals(checkpoint_ms=NOW - 20_000, usual_ms=MINUTE, generation=0, claimed=0)


def test_checkpoints_that_arrive_as_usual_are_good() -> None:
    assert judge("orders", WELL, NOW).status == "good"


@pytest.mark.parametrize(
    ("age_ms", "usual_ms", "status"),
    [
        (3 * MINUTE, MINUTE, "good"),
        (3 * MINUTE + 1, MINUTE, "late"),
        (59_000, 1_000, "good"),
        (61_000, 1_000, "late"),
        (10**12, None, "good"),
    ],
)
def test_late_is_three_times_the_usual_interval_and_never_under_a_minute(
    age_ms: int, usual_ms: int | None, status: str
) -> None:
    assert judge("orders", Vitals(checkpoint_ms=NOW - age_ms, usual_ms=usual_ms), NOW).status == status


def test_an_age_that_was_given_is_what_counts() -> None:
    it = Vitals(checkpoint_ms=NOW - 11_000, usual_ms=MINUTE, max_age_ms=10_000)
    health = judge("orders", it, NOW)
    assert health.status == "late"
    assert health.why == "the last checkpoint is 11 s old, allowed is 10 s"


def test_damage_comes_before_everything_else_and_names_the_command() -> None:
    health = judge("orders", Vitals(problem="the manifest of 0-3 is gone", claimed=4, claimed_ms=0), NOW)
    assert (health.status, health.why) == ("damaged", "the manifest of 0-3 is gone")
    assert health.command == ("check", "orders", "--read-data")


def test_a_claim_that_never_began_is_unfinished_after_a_while() -> None:
    young = Vitals(checkpoint_ms=NOW, generation=0, claimed=1, claimed_ms=NOW - 119_000)
    assert judge("orders", young, NOW).status == "good"
    assert judge("orders", young, NOW + 2_000).status == "unfinished"


def test_a_failed_sink_is_unfinished_at_once_and_a_pending_one_when_it_is_old() -> None:
    failed = Vitals(checkpoint_ms=NOW, usual_ms=MINUTE, sinks={"table": "committed", "topic": "failed"})
    assert judge("orders", failed, NOW).why == "sink topic failed at the newest checkpoint"
    pending = Vitals(checkpoint_ms=NOW, usual_ms=MINUTE, sinks={"topic": "pending"})
    assert judge("orders", pending, NOW).status == "good"
    assert judge("orders", pending, NOW + 4 * MINUTE).status == "unfinished"


def test_without_a_checkpoint_it_waits() -> None:
    assert judge("orders", Vitals(generation=0, claimed=0, claimed_ms=NOW), NOW).status == "waiting"


@pytest.mark.parametrize(
    ("times", "usual"), [([], None), ([5], None), ([0, 10], 10), ([0, 10, 20, 500], 10), ([100, 50], 0)]
)
def test_the_usual_interval_is_the_median(times: list[int], usual: int | None) -> None:
    assert usual_interval(times) == usual


@given(
    st.builds(
        Vitals,
        checkpoint_ms=st.none() | st.integers(0, 2 * NOW),
        usual_ms=st.none() | st.integers(0, NOW),
        max_age_ms=st.none() | st.integers(0, NOW),
        generation=st.none() | st.integers(0, 9),
        claimed=st.none() | st.integers(0, 9),
        claimed_ms=st.integers(0, 2 * NOW),
        sinks=st.dictionaries(st.text(), st.sampled_from(["committed", "pending", "failed"])),
        problem=st.none() | st.text(),
        is_copy=st.booleans(),
    )
)
def test_whatever_is_wrong_comes_with_something_to_do(vitals: Vitals) -> None:
    health = judge("orders", vitals, NOW)
    assert health.status in STATUSES
    assert health.why
    assert (health.status == "good") == (not health.command)
