"""What is offered as the next step does that step."""

from __future__ import annotations

import pytest

from holdfast.dashboard.render import command_line
from holdfast.decide.health import Health
from holdfast.report import Glance, next_step
from pages.blocks import parse_command

LATE = Health("late", "the last checkpoint is 3 h old", "Look.", ("list", "orders"))
URL = "s3://bucket/holdfast"


@pytest.mark.parametrize(
    ("it", "command"),
    [
        (
            Glance(name="orders", claimed_why="watch", directory="/data/ck", usual_interval_ms=61_200),
            "holdfast watch /data/ck -p orders --every 61s --repo s3://bucket/holdfast",
        ),
        (
            Glance(name="orders", claimed_why="watch", directory="/data/ck"),
            "holdfast watch /data/ck -p orders --every 30s --repo s3://bucket/holdfast",
        ),
        (
            Glance(name="orders", claimed_why="capture", directory="s3a://lake/ck"),
            "holdfast capture s3a://lake/ck -p orders --repo s3://bucket/holdfast",
        ),
        (
            Glance(name="orders", claimed_why="rewind", engine="spark"),
            "holdfast run MODULE:ATTR --repo s3://bucket/holdfast",
        ),
        (
            Glance(name="orders", is_copy=True, claimed_why="start", engine="spark"),
            "holdfast standby -p orders SOURCE s3://bucket/holdfast",
        ),
    ],
)
def test_a_pipeline_that_stopped_is_started_again_as_it_was(it: Glance, command: str) -> None:
    step = next_step(LATE, it)
    assert command_line(step.command, URL) == command
    parse_command(command.split())


@pytest.mark.parametrize("why", ["start", "attach"])
def test_no_command_is_offered_for_a_program_of_somebodys_own(why: str) -> None:
    step = next_step(LATE, Glance(name="orders", claimed_why=why, engine="python", claimed_by="ada@desk/4711"))
    assert step.command == ()
    assert step.advice.startswith("It last ran as ada@desk/4711. ")


@pytest.mark.parametrize("status", ["good", "damaged"])
def test_what_is_well_or_damaged_keeps_its_own_next_step(status: str) -> None:
    health = Health(status, "so it is", "Find out.", ("check", "orders"))  # type: ignore[arg-type]
    assert next_step(health, Glance(name="orders", claimed_why="watch", directory="/data/ck")) == health
