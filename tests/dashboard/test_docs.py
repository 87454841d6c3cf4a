"""The how-to says what the dashboard has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
from prometheus_client.parser import text_string_to_metric_families

from dashboard.conftest import Client
from holdfast.cli import cli
from holdfast.decide.health import LEAST_PATIENCE_MS, STATUSES

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "how-to" / "dashboard.md").read_text(encoding="utf-8")


def test_every_figure_is_explained_and_no_other(fleet: Client) -> None:
    served = {
        sample.name
        for family in text_string_to_metric_families(fleet.get("/metrics").text)
        for sample in family.samples
    }
    table = PAGE.partition("## Prometheus")[2].partition("\nTwo alerts")[0]
    assert set(re.findall(r"`(holdfast_[a-z_]+)`", table)) == served


def test_the_alert_on_old_checkpoints_waits_at_least_as_long_as_the_dashboard_does() -> None:
    [floor] = re.findall(r"> clamp_min\(\d+ \* holdfast_checkpoint_interval_seconds, (\d+)\)", PAGE)
    assert int(floor) * 1000 >= LEAST_PATIENCE_MS


def test_every_status_is_explained() -> None:
    assert re.findall(r"^\| (\w+) \|", PAGE.partition("| health | means |")[2], re.MULTILINE)[: len(STATUSES)] == list(
        STATUSES
    )


def test_every_command_is_one() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("holdfast ")]
    assert len(lines) == 3
    for line in lines:
        _, name, *words = shlex.split(line)
        with click.Context(cli) as context:
            found = cli.get_command(context, name)
        assert found is not None
        known = {option for param in found.params for option in param.opts}
        assert {word for word in words if word.startswith("-")} <= known


def test_every_picture_is_there() -> None:
    pictures = re.findall(r"\]\(\.\./images/([^)]+)\)", PAGE)
    assert pictures
    for picture in pictures:
        assert (ROOT / "docs" / "images" / picture).stat().st_size < 200_000
