"""`holdfast key`, and every other command on an encrypted repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from cli.sample_repository import Answer, invoke, make_orders
from holdfast import Key, Repository
from holdfast.cli.group import VERBS


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    file = str(tmp_path / "key")
    assert invoke("key", "new", file).code == 0
    return file


@pytest.fixture
def vault(orders: Repository, tmp_path: Path, key_file: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An encrypted copy of the sample repository, which HOLDFAST_REPO names, and a plain copy beside it."""
    source, url = str(tmp_path / "repository"), str(tmp_path / "vault")
    for words in (["plain"], ["vault", "--to-key-file", key_file]):
        copied = invoke("copy", source, str(tmp_path / words[0]), "--init", *words[1:])
        assert copied.code == 0, copied.err
    monkeypatch.setenv("HOLDFAST_REPO", url)
    monkeypatch.setenv("HOLDFAST_KEY_FILE", key_file)
    return url


@pytest.fixture
def locked(tmp_path: Path, key_file: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The sample pipeline, run in an encrypted repository."""
    url = str(tmp_path / "vault")
    monkeypatch.setenv("HOLDFAST_REPO", url)
    monkeypatch.setenv("HOLDFAST_KEY_FILE", key_file)
    make_orders(url)
    return url


def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Answer:
    """The same command on the plain copy."""
    with monkeypatch.context() as patch:
        patch.delenv("HOLDFAST_KEY_FILE")
        return invoke(*words, "--repo", str(tmp_path / "plain"))


READING = [
    ["list"],
    ["list", "orders", "--abandoned"],
    ["show", "orders@before-upgrade"],
    ["diff", "orders@epoch:1", "orders@epoch:5"],
    ["du", "orders"],
    ["check", "--read-data"],
    ["prune", "orders", "--keep-last", "2", "--dry-run"],
]


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_what_is_read_from_an_encrypted_repository_is_what_a_plain_one_gives(
    words: list[str], vault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, known = invoke(*words, "--json"), plain(tmp_path, monkeypatch, *words, "--json")
    assert answer.code == known.code, answer.err
    assert same(answer.out, "vault") == same(known.out, "plain")


def same(text: str, folder: str) -> str:
    """A document without what tells one repository, and one moment, from another."""
    return re.sub(r'"age_(\w+)": ?[0-9.]+', "", text.replace(f"/{folder}", "/HERE"))


def test_the_restored_files_are_the_same(vault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke("restore", "orders@before-upgrade", str(tmp_path / "one")).code == 0
    assert plain(tmp_path, monkeypatch, "restore", "orders@before-upgrade", str(tmp_path / "two")).code == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two") != {}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_changes_something_works_on_an_encrypted_repository(locked: str) -> None:
    for words in (
        ["doctor"],
        ["savepoint", "orders@epoch:3", "named-later"],
        ["pin", "orders@epoch:4", "--why", "audit"],
        ["pin", "orders@epoch:4", "--remove"],
        ["forget", "orders@epoch:0", "--yes"],
        ["prune", "orders", "--keep-last", "2"],
        ["check", "--read-data", "--repair"],
    ):
        answer = invoke(*words)
        assert answer.code == 0, (words, answer.out, answer.err)
    assert [c.epoch for c in holdfast.open(locked).pipeline("orders").checkpoints()] == [1, 2, 3, 4, 5]
    raw = [path for path in Path(locked).rglob("*") if path.is_file() and "pipelines" in path.parts]
    assert raw
    assert not [path for path in raw if "orders" in str(path.relative_to(locked)) or b"orders" in path.read_bytes()]


def test_damage_in_the_raw_files_is_found_with_exit_code_3(locked: str, tmp_path: Path) -> None:
    pack = max(Path(locked).rglob("pack-*"), key=lambda path: path.stat().st_mtime_ns)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)
    found = invoke("check", "--read-data")
    assert found.code == 3
    assert "envelope does not open" in found.out
    assert invoke("restore", "orders", str(tmp_path / "restored")).code == 3
    assert not (tmp_path / "restored").exists()


# ---- without the key, or with another ----


@pytest.mark.parametrize("verb", ["list", "du", "check", "key"])
def test_without_a_key_or_with_a_wrong_one_every_command_ends_with_6(
    verb: str, locked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["key", "list"] if verb == "key" else [verb]
    monkeypatch.delenv("HOLDFAST_KEY_FILE")
    missing = invoke(*words)
    assert (missing.code, "HF-5040" in missing.err) == (6, True)
    Key.generate().save(tmp_path / "other")
    wrong = invoke(*words, "--key-file", str(tmp_path / "other"))
    assert (wrong.code, "HF-5041" in wrong.err) == (6, True)


def test_a_key_is_taken_from_a_file_a_command_or_the_environment(
    locked: str, key_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_KEY_FILE")
    assert invoke("list", "--key-file", key_file).code == 0
    assert invoke("list", "--key-command", f"cat {key_file}").code == 0
    both = invoke("list", "--key-file", key_file, "--key-command", f"cat {key_file}")
    assert both.code == 2
    monkeypatch.setenv("HOLDFAST_KEY_COMMAND", f"cat {key_file}")
    assert invoke("list").code == 0
    monkeypatch.delenv("HOLDFAST_KEY_COMMAND")
    monkeypatch.setenv("HOLDFAST_KEY", Path(key_file).read_text())
    assert invoke("list").code == 0


def test_every_command_that_takes_a_repository_takes_its_key() -> None:
    for name in VERBS:
        shown = invoke(name, "--help").out
        assert ("--repo URL" in shown) == (
            "--key-file" in shown.replace("-key-file", "--key-file", 0)
        ) or name == "copy"


def test_no_output_of_any_kind_has_the_key_in_it(locked: str, key_file: str) -> None:
    secret = Path(key_file).read_text().strip().partition(":")[2]
    for words in (
        ["list"],
        ["doctor"],
        ["key", "list"],
        ["list", "nothing"],
        ["key", "add", key_file],
        ["key", "new", key_file],
    ):
        for more in ([], ["--json"], ["--debug"]):
            answer = invoke(*words, *more)
            assert secret not in answer.out + answer.err


# ---- init and key ----


def test_init_with_a_key_makes_an_encrypted_repository(tmp_path: Path, key_file: str) -> None:
    url = str(tmp_path / "new")
    made = invoke("init", url, "--encrypt", "--key-file", key_file)
    assert made.code == 0
    assert Key.from_file(key_file).id in made.err + made.out
    again = invoke("init", url, "--key-file", key_file, "--json").document
    assert (again["made"], again["key"]) == (False, Key.from_file(key_file).id)


def test_init_that_insists_on_a_key_makes_nothing_without_one(tmp_path: Path) -> None:
    refused = invoke("init", str(tmp_path / "new"), "--encrypt")
    assert (refused.code, "HF-5040" in refused.err) == (6, True)
    assert not (tmp_path / "new").exists()


def test_a_key_is_added_listed_and_removed(locked: str, tmp_path: Path, key_file: str) -> None:
    other = tmp_path / "other"
    first, second = Key.from_file(key_file).id, invoke("key", "new", str(other), "--json").document["key"]
    assert invoke("key", "add", str(other)).code == 0
    assert invoke("key", "list", "--json").document["keys"] == sorted([first, second])
    assert invoke("key", "remove", first).code == 6, "not the one in use"
    assert invoke("key", "remove", first, "--key-file", str(other)).code == 0
    assert invoke("list").code == 6
    shown = invoke("key", "list", "--key-file", str(other)).out
    assert second in shown
    assert first not in shown


def test_a_rotation_from_the_command_line(locked: str, tmp_path: Path, key_file: str) -> None:
    new, emergency = tmp_path / "new", tmp_path / "emergency"
    for file in (new, emergency):
        invoke("key", "new", str(file))
    before = contents(Path(locked) / "pipelines")
    assert invoke("key", "rotate", str(new), "--keep", str(emergency)).code == 0
    assert contents(Path(locked) / "pipelines") == before
    assert invoke("list").code == 6
    for file in (new, emergency):
        assert invoke("check", "--read-data", "--key-file", str(file)).code == 0
    assert "1 rotation" in invoke("key", "list", "--key-file", str(new)).out


MEANINGLESS = [["new"], ["rotate"], ["list", "x"], ["add", "x", "--keep", "y"]]


@pytest.mark.parametrize("words", MEANINGLESS, ids=lambda words: words[0])
def test_what_makes_no_sense_is_usage(words: list[str], locked: str) -> None:
    assert invoke("key", *words).code == 2


def test_the_keys_of_a_plain_repository_are_none(orders: Repository) -> None:
    refused = invoke("key", "list")
    assert refused.code == 2
    assert "not encrypted" in refused.err


# ---- copies ----


def test_a_copy_between_two_encrypted_repositories(locked: str, tmp_path: Path, key_file: str) -> None:
    other = tmp_path / "other-key"
    invoke("key", "new", str(other))
    target = str(tmp_path / "second")
    assert invoke("copy", locked, target, "--init", "--to-key-file", str(other)).code == 0
    assert invoke("check", "--repo", target, "--key-file", str(other), "--read-data").code == 0
    again = invoke("copy", locked, target, "--to-key-file", str(other), "--json").document
    assert again["pipelines"][0]["objects"] == 0


def test_a_copy_that_would_decrypt_is_refused_before_anything_is_made_and_done_if_it_is_meant(
    locked: str, tmp_path: Path, key_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_KEY_FILE")
    target = tmp_path / "open"
    refused = invoke("copy", locked, str(target), "--init", "--from-key-file", key_file)
    assert (refused.code, "HF-5043" in refused.err) == (6, True)
    assert not target.exists()
    invoke("init", str(target))
    assert invoke("copy", locked, str(target), "--from-key-file", key_file).code == 6
    assert invoke("copy", locked, str(target), "--from-key-file", key_file, "--decrypt").code == 0
    assert invoke("check", "--repo", str(target), "--read-data").code == 0


def test_a_key_in_the_environment_is_that_of_the_side_that_is_encrypted(
    orders: Repository, tmp_path: Path, key_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_KEY_FILE", key_file)
    source = str(tmp_path / "repository")
    assert invoke("copy", source, str(tmp_path / "vault"), "--init").code == 0
    assert invoke("list", "--repo", str(tmp_path / "vault")).code == 0
    with monkeypatch.context() as patch:
        patch.delenv("HOLDFAST_KEY_FILE")
        invoke("init", str(tmp_path / "third"))
    refused = invoke("copy", source, str(tmp_path / "third"))
    assert (refused.code, "HF-5042" in refused.err) == (6, True), "with a key, and neither of them encrypted"
