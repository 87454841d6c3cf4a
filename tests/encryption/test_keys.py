from __future__ import annotations

import pickle
import stat
from pathlib import Path

import pytest

from holdfast import Key
from holdfast.encryption.keys import COMMAND, FILE, TEXT, has_key
from holdfast.errors import BadKey


def test_a_key_goes_through_text_and_file(tmp_path: Path) -> None:
    key = Key.generate()
    key.save(tmp_path / "key")
    assert Key.from_file(tmp_path / "key") == Key.from_text(f"  {key.text()}\n") == key
    assert key != Key.generate()


def test_its_file_is_for_its_owner_alone_and_never_written_over(tmp_path: Path) -> None:
    Key.generate().save(tmp_path / "key")
    before = (tmp_path / "key").read_text()
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    with pytest.raises(BadKey, match="exists"):
        Key.generate().save(tmp_path / "key")
    assert (tmp_path / "key").read_text() == before


def test_a_key_is_told_by_its_id_and_never_shown() -> None:
    key = Key.generate()
    secret = key.text().partition(":")[2]
    assert key.id in repr(key)
    for shown in (repr(key), str(key), f"{key}", key.id):
        assert secret not in shown
        assert key.text() not in shown
    assert Key.from_text(key.text()).id == key.id


def test_a_key_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Key.generate())


def test_any_letter_that_is_wrong_lost_or_added_is_noticed_and_the_text_is_not_repeated() -> None:
    text = Key.generate().text()
    for at in range(len(text)):
        for wrong in (text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :], text[:at] + text[at + 1 :]):
            with pytest.raises(BadKey) as refused:
                Key.from_text(wrong)
            assert text[20:40] not in str(refused.value)


@pytest.mark.parametrize("text", ["", "hunter2", "holdfast-key-1:", "holdfast-key-1:!!!!", "holdfast-key-2:abcd"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(BadKey):
        Key.from_text(text)


def test_the_environment_gives_it_as_text_file_or_command(tmp_path: Path) -> None:
    key = Key.generate()
    key.save(tmp_path / "k e y")
    assert Key.from_environment({TEXT: key.text()}) == key
    assert Key.from_environment({FILE: str(tmp_path / "k e y")}) == key
    assert Key.from_environment({COMMAND: f"cat '{tmp_path}/k e y'"}) == key
    assert Key.from_environment({}) is None
    assert Key.from_environment({TEXT: "", FILE: ""}) is None


def test_whether_it_gives_one_is_told_without_reading_anything() -> None:
    assert has_key({COMMAND: "never run"})
    assert not has_key({"HOLDFAST_REPO": "here"})


def test_two_at_once_are_refused() -> None:
    with pytest.raises(BadKey, match="HOLDFAST_KEY and HOLDFAST_KEY_FILE"):
        Key.from_environment({TEXT: "x", FILE: "y"})


@pytest.mark.parametrize("command", ["false", "/no/such/program", "'", "", "echo hello", "cat /dev/null"])
def test_a_command_that_gives_none_says_so(command: str) -> None:
    with pytest.raises(BadKey, match="the key command"):
        Key.from_command(command)


def test_a_command_is_run_without_a_shell() -> None:
    with pytest.raises(BadKey):
        Key.from_command("echo $HOME; echo")


def test_a_file_that_is_not_there_or_not_text_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadKey, match="No such file"):
        Key.from_file(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(BadKey, match="not text"):
        Key.from_file(tmp_path / "bytes")
