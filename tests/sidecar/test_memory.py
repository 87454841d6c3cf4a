"""What a sidecar remembers outlives it, and two of them never both tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.decide.alerts import Alert, Message, Standing
from holdfast.errors import StateUnusable
from holdfast.sidecar.memory import Damaged, Memory

ALERT = Alert("way-back", "orders", "vacuumed", "keep more", "table")
STANDS = {ALERT.key: Standing(ALERT, 1000)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "state.json"


def taken(file: Path) -> Memory:
    memory = Memory(file)
    assert memory.acquire()
    return memory


def test_what_was_told_found_and_done_is_there_after_a_restart(file: Path) -> None:
    memory = taken(file)
    memory.keep_standing(STANDS)
    memory.record("chat", Message("firing", ALERT, 1000, 1), 2000)
    memory.ran("check", "orders", 3000, Damaged(["gone"], ["0-3"]))
    memory.close()
    again = taken(file)
    assert again.standing() == STANDS
    assert again.told("chat")[ALERT.key].at_ms == 2000
    assert again.told("pager") == {}
    assert (again.last_run("check", "orders"), again.damaged("orders")) == (3000, Damaged(["gone"], ["0-3"]))
    assert (again.last_run("prune", "orders"), again.damaged("clicks")) == (None, None)
    again.close()


def test_a_second_one_waits_until_the_first_lets_go_and_then_knows_what_it_knew(file: Path) -> None:
    first, second = taken(file), Memory(file)
    assert not second.acquire()
    second.keep_standing({})
    first.keep_standing(STANDS)
    assert second.standing() == {}
    first.close()
    assert second.acquire()
    assert second.standing() == STANDS
    first.keep_standing({})
    second.close()
    assert taken(file).standing() == STANDS, "what let go writes no more"


def test_a_receiver_that_was_taken_out_is_a_new_one_when_it_comes_back(file: Path) -> None:
    memory = taken(file)
    memory.record("chat", Message("firing", ALERT, 1000, 1), 2000)
    memory.keep_receivers({"chat"})
    assert memory.told("chat")
    memory.keep_receivers({"pager"})
    assert memory.told("chat") == {}
    memory.close()


@pytest.mark.parametrize(
    ("data", "why"),
    [("not json", "no state of a sidecar"), ('{"told": 3}', "no state of a sidecar"), ('{"version": 99}', "newer")],
)
def test_a_file_that_is_something_else_is_refused_and_left_alone(file: Path, data: str, why: str) -> None:
    file.parent.mkdir()
    file.write_text(data)
    with pytest.raises(StateUnusable, match=why):
        Memory(file).acquire()
    assert file.read_text() == data


def test_a_place_that_can_not_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnusable) as told:
        Memory(tmp_path / "file" / "state.json").acquire()
    assert "`state` in holdfast.toml" in told.value.hint


def test_a_place_that_goes_away_is_told_and_written_to_once_it_is_back(file: Path) -> None:
    memory = taken(file)
    file.parent.rename(file.parent.with_name("aside"))
    memory.keep_standing(STANDS)
    assert "No such file" in memory.problem
    assert memory.standing() == STANDS, "and all goes on"
    file.parent.with_name("aside").rename(file.parent)
    memory.ran("check", "orders", 1)
    assert memory.problem == ""
    assert set(json.loads(file.read_text())["standing"]) == {ALERT.key}
    memory.close()
