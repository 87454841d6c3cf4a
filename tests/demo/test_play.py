"""The demo is played for real, in small, and ends as its verdict says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli.group import cli
from holdfast.demo import play
from holdfast.demo.orders import Verdict, compare, read_totals
from holdfast.demo.play import Outcome, Play
from holdfast.errors import DemoFailed
from spark.directories import MadeDirectory


def test_a_killed_query_without_its_directory_ends_with_the_totals_of_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "FILES", 10)
    monkeypatch.setattr(play, "ROWS", 200)
    monkeypatch.setattr(play, "KILL_AFTER", 4)
    told: list[tuple[str, str]] = []
    outcome = Play(tmp_path, lambda kind, words: told.append((kind, words))).perform()
    assert outcome.verdict == Verdict(2000, 0, 0, 0)
    assert outcome.killed_in_batch > outcome.restored_epoch >= 0
    assert not (tmp_path / "checkpoint").exists()
    assert [kind for kind, _ in told].count("checkpoint") >= 1
    assert holdfast.open(str(tmp_path / "repository")).pipeline("orders").check(read_percent=100).damaged == []

    play._lose_an_order(tmp_path / "outputs")
    assert not compare(read_totals(tmp_path / "truth"), read_totals(tmp_path / "outputs")).good


OUTCOME = Outcome(Verdict(10, 0, 0, 0), 10, 3, 7, 8, 1.0, 100, 200)


@pytest.mark.parametrize(
    ("verdict", "code", "word"), [(Verdict(10, 0, 0, 0), 0, "good"), (Verdict(9, 1, 0, 1), 1, "BAD")]
)
def test_the_exit_code_is_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, code: int, word: str
) -> None:
    monkeypatch.setattr(Play, "perform", lambda self: replace(OUTCOME, verdict=verdict))
    ended = CliRunner().invoke(cli, ["demo", "--dir", str(tmp_path / "place")])
    assert (ended.exit_code, word in ended.output) == (code, True)


def test_a_query_that_starts_afresh_does_not_pass_for_a_restored_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(_play: Play, repository: holdfast.Repository, checkpoint: Path, _outputs: Path) -> int:
        made = MadeDirectory(checkpoint)
        for _ in range(5):
            made.batch()
        holdfast.capture(checkpoint, repository, pipeline="orders", stopped=True)
        return 5

    monkeypatch.setattr(Play, "_run_to_end", lambda *_: 0)
    monkeypatch.setattr(Play, "_run_and_kill", capture)
    with pytest.raises(DemoFailed, match="began with batch 0, not after batch 4"):
        Play(tmp_path, lambda _kind, _words: None).perform()


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    ended = CliRunner().invoke(cli, ["demo", "--dir", str(tmp_path)])
    assert ended.exit_code == 6
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
