"""The demo shows itself: plain lines in a pipe, and on a terminal figures that move below what stays."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cli.test_terminal import NASTY
from holdfast.cli.demo_show import LiveShow, PlainShow, showing
from holdfast.cli.render import Output
from holdfast.demo.messages import Began, Checkpointed, Committed, Held, News, Progressed, Ready, Rewound, Saved
from holdfast.demo.play import Nobody, Show

HEARD: list[News] = [
    Ready("4.3.0"),
    Committed(7, 1900, 0.4),
    Progressed(7, 4000, 3210.0, 11_260, 5 * 1024**2),
    Checkpointed("0-3", 7, 100 * 1024, 400 * 1024, 0.037),
    Saved("before-upgrade", "0-3", 7),
    Held(11),
    Began(1, "warm", 10, "0-5", 1),
    Began(2, "checkpoint", 14, "1-1", 0),
    Rewound(7, 3, 0.6),
]


def play(show: Show) -> None:
    show.scene("run", "Orders are summed up. " * 10)
    for news in HEARD:
        show.news(news)


def test_a_pipe_gets_a_line_for_everything_that_is_worth_one(capsys: pytest.CaptureFixture[str]) -> None:
    play(PlainShow(Output()))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["", "1/7 A pipeline runs"]
    assert (
        "    checkpoint 0-3  epoch  7  100.0 KiB new of 400.0 KiB,  37 ms   3,210 orders/s, 11,260 rows of state"
        in lines
    )
    assert "    savepoint 'before-upgrade': checkpoint 0-3, epoch 7" in lines
    assert "    laid down from checkpoint 1-1: it goes on after epoch 14" in lines
    assert lines[-1] == "    taken back to epoch 7 in 0.6 s"
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_terminal_shows_rate_state_and_checkpoints_as_they_land(width: int) -> None:
    show = LiveShow(Console(width=width, file=io.StringIO(), record=True))
    play(show)
    show.console.print(show.render())
    shown = show.console.export_text()
    assert "1/7 A pipeline runs" in shown
    assert "3,210 orders/s  █" in shown
    assert "11,260 rows, 5.0 MiB in memory" in shown
    assert ("0-3  epoch  7  ██░░░░" if width == 60 else "0-3  epoch  7  ███░░░░░░░░░") in shown
    assert "100.0 KiB new" in shown
    assert ("100.0 KiB new of 400.0 KiB" in shown) == (width > 60)
    assert "checkpoints" in shown
    assert "…" not in shown
    assert "Epoch 11 is in one table of two" in shown
    assert max(map(len, shown.splitlines())) <= width


def test_a_rate_falls_to_nothing_when_the_driver_is_killed() -> None:
    show = LiveShow(Console(width=80, file=io.StringIO(), record=True))
    play(show)
    show.scene("kill", "It is killed.")
    show.console.print(show.render())
    assert "0 orders/s  █▁" in show.console.export_text()


def test_what_a_driver_says_can_not_move_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveShow(Console(width=80, file=io.StringIO(), record=True))
    for show in (PlainShow(Output()), live):
        show.note(NASTY)
        show.news(Saved(NASTY, NASTY, 1))
    assert "\x1b" not in capsys.readouterr().out + live.console.export_text()


@pytest.mark.parametrize(("quiet", "as_json"), [(True, False), (False, True)])
def test_nothing_is_shown_when_quiet_or_for_a_program(
    capsys: pytest.CaptureFixture[str], quiet: bool, as_json: bool
) -> None:
    with showing(Output(quiet=quiet), as_json=as_json) as show:
        assert isinstance(show, Nobody)
        play(show)
    assert capsys.readouterr().out == ""
