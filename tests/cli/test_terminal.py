"""What reaches a terminal: tables, colours where they are wanted, and never a control character from a repository."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.sample_repository import invoke
from cli.terminals import ESCAPE, Terminal
from holdfast import Repository
from holdfast.errors import StillNeeded
from holdfast.layout import Slot
from holdfast.report import plain, to_json
from holdfast.text import age, clean, duration, moment, short_ids, size

NASTY = "red\x1b[31m \x9b31m bell\x07 title\x1b]0;owned\x07 back\u202etxt\nnext"


def on_terminal(*words: str, **environment: str) -> tuple[int, str]:
    """Run a command on a terminal of its own; gives its exit code and all that it wrote."""
    with Terminal([sys.executable, "-m", "holdfast", *words], **environment) as terminal:
        return terminal.wait(), terminal.text


def test_a_terminal_gets_colours_and_a_pipe_gets_none(orders: Repository) -> None:
    assert "\x1b[" in on_terminal("list")[1]
    assert "\x1b" not in invoke("list").out


def test_no_color_is_honoured(orders: Repository) -> None:
    for words in (["list"], ["show", "orders"], ["prune", "--keep-last", "1", "-n"], ["show", "orders@nothing"]):
        assert "\x1b[" not in on_terminal(*words, NO_COLOR="1")[1]


@pytest.mark.parametrize("words", [["list", "orders"], ["show", "orders"], ["prune", "--keep-last", "1", "-n"]])
def test_control_characters_in_a_repository_never_reach_the_terminal(orders: Repository, words: list[str]) -> None:
    orders.pipeline("orders")["epoch:5"].pin(NASTY)
    _, written = on_terminal(*words)
    # What is left after our own styles is taken away must be plain text.
    text = ESCAPE.sub("", written)
    assert "bell" in text
    assert all(c.isprintable() or c in "\r\n" for c in text), repr(text)
    assert "\\x1b" in text
    piped = invoke(*words).out
    assert all(c.isprintable() or c == "\n" for c in piped)


def test_json_of_nasty_text_is_safe_to_show_and_still_the_same_text(orders: Repository) -> None:
    orders.pipeline("orders")["epoch:5"].pin(NASTY)
    answer = invoke("show", "orders", "--json")
    assert all(c.isprintable() or c == "\n" for c in answer.out)
    assert answer.document["pins"][0]["why"] == NASTY


def test_a_name_with_an_escape_in_an_error_is_shown_as_text(orders: Repository) -> None:
    answer = invoke("show", "orders@\x1b[31m")
    assert answer.code == 2
    assert "\x1b" not in answer.err


def test_forget_asks_on_a_terminal_and_takes_no_for_an_answer(orders: Repository) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"n\n")
    running = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "forget", "orders@epoch:0"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = running.communicate(timeout=60)
    os.close(theirs)
    os.close(ours)
    assert running.returncode == 1
    assert "for good?" in err
    assert "nothing was changed" in err
    assert out == ""
    assert len(orders.pipeline("orders").checkpoints()) == 6


def test_progress_bars_stay_out_of_what_is_piped(orders: Repository, tmp_path: Path) -> None:
    answer = invoke("check", "--read-data", "--json")
    assert json.loads(answer.out)["ok"] is True
    assert answer.err == ""


@given(st.text())
def test_cleaned_text_is_always_printable(text: str) -> None:
    assert clean(text).isprintable()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_never_holds_a_bare_control_character_and_reads_back_the_same(text: str) -> None:
    shown = to_json({"text": text})
    assert json.loads(shown) == {"text": text}
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)


@given(st.lists(st.uuids(), min_size=1, unique=True))
def test_short_ids_tell_every_checkpoint_from_the_others(ids: list[object]) -> None:
    shown = short_ids(str(each) for each in ids)
    for whole, short in shown.items():
        assert [other for other in shown if other.startswith(short)] == [whole]


def test_short_ids_of_one_moment_grow_until_they_differ() -> None:
    a, b = "0193a1b2-c3d4-7000-8000-000000000000", "0193a1b2-c3d4-7100-8000-000000000000"
    assert short_ids([a, b]) == {a: "0193a1b2-c3d4-70", b: "0193a1b2-c3d4-71"}


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_048_575, "1.0 MiB"),
        (5 * 2**30, "5.0 GiB"),
    ],
)
def test_sizes_are_shown_in_the_unit_that_fits(count: int, shown: str) -> None:
    assert size(count) == shown


def test_ages_and_moments_of_a_broken_clock_are_shown_all_the_same() -> None:
    assert moment(10**18, utc=True) == f"{10**18} ms"
    assert age(10_000, 0) == "in the future"
    assert age(0, 3 * 86_400_000) == "3 d"
    assert age(None, 0) == "-"


def test_plain_makes_errors_and_slots_readable(orders: Repository) -> None:
    assert plain({Slot(1, 2): {Slot(0, 3)}}) == {"1-2": ["0-3"]}
    assert plain(StillNeeded("a", ["b"]))["fields"] == {"checkpoint": "a", "by": ["b"]}


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (None, "–"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (12_340, "12.3 s"),
        (60_000, "1 min"),
        (90_000, "1 min 30 s"),
        (3_600_000, "1 h"),
        (90_061_000, "1 d 1 h"),
        (-1_500, "-1.5 s"),
    ],
)
def test_durations_are_shown_in_one_or_two_units(milliseconds: int | None, shown: str) -> None:
    assert duration(milliseconds) == shown
