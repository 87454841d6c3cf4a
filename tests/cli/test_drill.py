"""`holdfast drill`: what it proves, what it finds, and that it leaves everything as it was."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import holdfast
from cli.sample_repository import invoke, take_checkpoints
from holdfast import Repository
from spark.directories import MadeDirectory


@pytest.fixture
def clicks(orders: Repository, tmp_path: Path) -> Repository:
    """The sample repository with a Spark query beside the loop, captured twice."""
    made = MadeDirectory(tmp_path / "ck", operators=0)
    for batches in (3, 2):
        for _ in range(batches):
            made.batch()
        assert invoke("capture", str(made.root), "-p", "clicks", "--stopped").code == 0
    return orders


def objects(repository: Repository) -> dict[str, bytes]:
    return {info.key: repository.store.get(info.key) for info in repository.store.list("")}


def flip_newest(repository: Repository, pipeline: str) -> None:
    """Turn over a bit of what only the newest checkpoint of a pipeline has."""
    newest, before = repository.pipeline(pipeline).checkpoints()[:-3:-1]
    shared = {artifact.sha256 for _, artifact in before.manifest.artifacts()}
    own = next(a for _, a in newest.manifest.artifacts() if a.sha256 not in shared and a.size_bytes and a.path)
    key = f"{newest.pipeline.records.keys.prefix}{own.path}"
    data = bytearray(repository.store.get(key))
    data[(own.offset or 0) + own.size_bytes // 2] ^= 1
    repository.store.delete([key])
    repository.store.create(key, bytes(data))


def test_all_that_is_good_is_said_to_be_and_nothing_is_touched(clicks: Repository, tmp_path: Path) -> None:
    before = objects(clicks)
    answer = invoke("drill", "--scratch", str(tmp_path / "scratch"))
    assert (answer.code, answer.err) == (0, "")
    assert "clicks: good 0-1, epoch 4, taken " in answer.out
    assert "orders: good " in answer.out
    assert "a restart goes on after batch 4" in answer.out
    assert "all verified" in answer.out
    assert objects(clicks) == before
    assert [*(tmp_path / "scratch").iterdir()] == []


def test_what_was_restored_can_be_kept(clicks: Repository, tmp_path: Path) -> None:
    assert invoke("drill", "clicks", "--scratch", str(tmp_path / "scratch"), "--keep").code == 0
    assert (tmp_path / "scratch/clicks/metadata").exists()


@pytest.mark.parametrize("pipeline", ["clicks", "orders"])
def test_a_flipped_bit_is_found_and_the_others_have_their_turn(
    clicks: Repository, tmp_path: Path, pipeline: str
) -> None:
    flip_newest(clicks, pipeline)
    before = objects(clicks)
    reports = [str(tmp_path / f"drill.{kind}") for kind in ("xml", "json", "txt")]
    answer = invoke("drill", *(word for report in reports for word in ("--report", report)))
    assert answer.code == 3
    assert f"{pipeline}: FAILED" in answer.out
    assert f"{'orders' if pipeline == 'clicks' else 'clicks'}: good" in answer.out
    assert "HF-2002" in answer.out
    assert "a start would fall back to " in answer.out
    assert objects(clicks) == before

    suites = {suite.get("name"): suite for suite in ElementTree.parse(reports[0]).getroot()}
    assert suites[pipeline].get("failures") == "1"
    [failure] = suites[pipeline].iter("failure")
    assert failure.get("type") == "HF-2002"
    document = json.loads(Path(reports[1]).read_text())
    assert document["ok"] is False
    assert {each["pipeline"]: each["ok"] for each in document["pipelines"]}[pipeline] is False
    assert f"{pipeline}: FAILED" in Path(reports[2]).read_text()


def test_what_was_damaged_before_it_was_captured_is_found_where_the_directory_is_read_back(
    orders: Repository, tmp_path: Path
) -> None:
    made = MadeDirectory(tmp_path / "ck")
    made.batch()
    assert invoke("capture", str(made.root), "-p", "clicks", "--stopped").code == 0
    answer = invoke("drill", "clicks", "--json")
    assert answer.code == 3
    [drilled] = answer.document["pipelines"]
    assert [step["name"] for step in drilled["steps"] if step["error"]] == ["read back"]


def test_a_newest_checkpoint_whose_record_is_damaged_is_found(clicks: Repository) -> None:
    latest = clicks.pipeline("clicks").latest()
    assert latest is not None
    key = latest.pipeline.records.keys.manifest(latest.slot)
    data = clicks.store.get(key)
    clicks.store.delete([key])
    clicks.store.create(key, data[:-20])
    answer = invoke("drill", "clicks", "--json")
    assert answer.code == 3
    [drilled] = answer.document["pipelines"]
    assert [step["name"] for step in drilled["steps"] if step["error"]] == ["restore"]
    assert drilled["steps"][-1]["said"] == "a start would fall back to 0-0, epoch 2"


def test_a_pipeline_without_a_checkpoint_proves_nothing(orders: Repository) -> None:
    orders.pipeline("empty").records.ensure_identity()
    answer = invoke("drill", "--json")
    assert answer.code == 4
    assert [each["ok"] for each in answer.document["pipelines"]] == [False, True]
    assert invoke("drill", "nobody").code == 4


def test_a_copy_can_be_drilled(clicks: Repository, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    assert invoke("copy", clicks.url, copy, "--init").code == 0
    assert invoke("drill", "--repo", copy).code == 0


def test_a_repository_without_pipelines_proves_nothing_and_every_report_says_so(tmp_path: Path) -> None:
    holdfast.open(str(tmp_path / "empty"), create=True)
    reports = [str(tmp_path / f"drill.{kind}") for kind in ("xml", "json", "txt")]
    words = ["drill", "--repo", str(tmp_path / "empty")]
    answer = invoke(*words, *(word for report in reports for word in ("--report", report)))
    assert answer.code == 4
    assert "HF-3006: " in answer.out
    assert "has no pipelines: nothing was proven" in answer.out
    [failure] = ElementTree.parse(reports[0]).getroot().iter("failure")
    assert failure.get("type") == "HF-3006"
    assert json.loads(Path(reports[1]).read_text())["ok"] is False
    assert "FAILED" in Path(reports[2]).read_text()
    answer = invoke(*words, "--json")
    assert (answer.code, answer.document["ok"]) == (4, False)


# ---- the scratch place ----


def files_below(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("pipeline", ["clicks", "orders"])
def test_what_was_in_the_scratch_place_before_is_refused_and_stays(
    clicks: Repository, tmp_path: Path, pipeline: str
) -> None:
    scratch = tmp_path / "scratch"
    (scratch / pipeline / "offsets").mkdir(parents=True)
    (scratch / pipeline / "metadata").write_text("of the query that runs here")
    (scratch / pipeline / "offsets/0").write_text("v1")
    before = files_below(scratch)
    answer = invoke("drill", "--scratch", str(scratch), "--json")
    assert answer.code == 6
    found = {each["pipeline"]: each for each in answer.document["pipelines"]}
    assert found[pipeline]["steps"][-1]["error"]["code"] == "HF-5008"
    assert [name for name, each in found.items() if each["ok"]] == [n for n in ("clicks", "orders") if n != pipeline]
    assert files_below(scratch) == before
    assert [path.name for path in scratch.iterdir()] == [pipeline]


def test_a_file_with_the_name_of_a_pipeline_stays(clicks: Repository, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch/clicks").write_text("somebody's")
    assert invoke("drill", "clicks", "--scratch", str(tmp_path / "scratch")).code == 6
    assert (tmp_path / "scratch/clicks").read_text() == "somebody's"


def test_an_empty_folder_and_a_link_to_one_are_empty_again(clicks: Repository, tmp_path: Path) -> None:
    for name in ("clicks", "elsewhere"):
        (tmp_path / "scratch" / name).mkdir(parents=True)
    (tmp_path / "scratch/orders").symlink_to("elsewhere")
    assert invoke("drill", "--scratch", str(tmp_path / "scratch")).code == 0
    assert sorted(path.name for path in (tmp_path / "scratch").iterdir()) == ["clicks", "elsewhere", "orders"]
    assert files_below(tmp_path / "scratch") == {}
    assert [*(tmp_path / "scratch/clicks").iterdir()] == []
    assert (tmp_path / "scratch/orders").is_symlink()


def test_what_was_restored_goes_although_a_driver_state_is_damaged(
    clicks: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> None:
        raise holdfast.errors.DamagedArtifact("data/0", "its digest is another")

    monkeypatch.setattr("holdfast.drilling._prove_the_rest", damaged)
    assert invoke("drill", "clicks", "--scratch", str(tmp_path / "scratch")).code == 3
    assert [*(tmp_path / "scratch").iterdir()] == []


def test_where_it_was_kept_is_said(clicks: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    answer = invoke("drill", "clicks", "--keep", "-q")
    [place] = tmp_path.glob("holdfast-drill-*")
    assert f"What was restored is in {place}" in answer.out
    assert (place / "clicks/metadata").exists()
    assert invoke("drill", "clicks", "--keep", "--scratch", str(tmp_path / "s"), "--json").document["kept"] == str(
        tmp_path / "s"
    )
    assert invoke("drill", "clicks", "--json").document["kept"] is None
    assert [*tmp_path.glob("holdfast-drill-*")] == [place]


def test_a_scratch_place_that_is_gone_or_stays_does_not_replace_what_was_found(
    clicks: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    answer = invoke("drill", "clicks", "--report", str(tmp_path / "drill.json"))
    assert (answer.code, "clicks: good" in answer.out) == (0, True)
    assert "could not be removed" in answer.err
    assert json.loads((tmp_path / "drill.json").read_text())["ok"] is True


def test_what_a_killed_drill_left_is_removed_by_the_next_and_what_was_kept_stays(
    clicks: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "system"
    home.mkdir()
    # It dies where the checkpoint was restored, before anything of it is removed.
    program = "import os, holdfast.drilling as d; d.inspect = lambda *_, **__: os.kill(os.getpid(), 9)\n"
    program += "from holdfast.cli import main; main()"
    command = [sys.executable, "-c", program, "drill", "clicks", "--repo", clicks.url]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(home)}, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [left] = home.iterdir()
    assert (left / "clicks" / "metadata").exists()
    assert stat.S_IMODE(left.stat().st_mode) == 0o700

    monkeypatch.setattr("tempfile.tempdir", str(home))
    assert invoke("drill", "clicks", "--keep").code == 0
    [kept] = home.glob("holdfast-drill-*")
    assert invoke("drill", "clicks").code == 0
    assert [*home.iterdir()] == [kept]
    assert (kept / "clicks" / "metadata").exists()


# ---- one that fails, and the others ----


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_pipeline_whose_identity_is_lost_fails_its_own_drill_alone(
    clicks: Repository, tmp_path: Path, how: str
) -> None:
    identity = tmp_path / "repository/pipelines/clicks/pipeline.json"
    if how == "damaged":
        identity.write_bytes(identity.read_bytes()[:-5])
    else:
        identity.unlink()
    answer = invoke("drill", "--report", str(tmp_path / "drill.json"), "--json")
    assert answer.code == 3
    assert json.loads((tmp_path / "drill.json").read_text()) == answer.document
    assert [(each["pipeline"], each["ok"]) for each in answer.document["pipelines"]] == [
        ("clicks", False),
        ("orders", True),
    ]
    assert answer.document["pipelines"][0]["steps"][0]["error"]["code"] in ("HF-2001", "HF-2005")


def test_a_pipeline_that_is_not_there_keeps_no_other_from_its_turn(orders: Repository) -> None:
    answer = invoke("drill", "nobody", "orders")
    assert answer.code == 4
    assert "there is no pipeline 'nobody'" in answer.out
    assert "orders: good" in answer.out


OTHER = """
from holdfast.pipeline.pipeline import Pipeline
from holdfast.sinks import SQLite

pipeline = Pipeline("other", sources={"events": None}, query=lambda events: events, sinks={"log": SQLite("x.db", "t")})
"""


@pytest.mark.parametrize(
    ("target", "code", "why"),
    [
        ("no_such_module_here:x", 2, "there is no module no_such_module_here"),
        ("drill_raising:x", 1, "RuntimeError: no database"),
        ("drill_ending:x", 1, "SystemExit: 7"),
        ("drill_other:pipeline", 2, "is the pipeline 'other', and these are drilled: clicks, orders"),
    ],
)
def test_code_that_starts_no_pipeline_is_a_failed_drill_of_its_own_and_the_others_have_their_turn(
    clicks: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, code: int, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("drill_raising.py").write_text("raise RuntimeError('no database')")
    Path("drill_ending.py").write_text("raise SystemExit(7)")
    Path("drill_other.py").write_text(OTHER)
    answer = invoke("drill", "--start", target, "--report", "drill.json", "--report", "drill.xml")
    sys.modules.pop("drill_other", None)
    assert answer.code == code, answer.err
    assert f"{target}: FAILED" in answer.out
    assert why in answer.out
    assert "clicks: good" in answer.out
    assert "orders: good" in answer.out
    document = json.loads(Path("drill.json").read_text())
    assert [(each["pipeline"], each["ok"]) for each in document["pipelines"]] == [
        (target, False),
        ("clicks", True),
        ("orders", True),
    ]
    assert [failure.get("type") for failure in ElementTree.parse("drill.xml").getroot().iter("failure")]


def test_what_is_damaged_counts_for_more_than_code_that_can_not_be_loaded(clicks: Repository) -> None:
    flip_newest(clicks, "clicks")
    assert invoke("drill", "--start", "no_such_module_here:x").code == 3


# ---- what is refused before ----


@pytest.mark.parametrize("report", ["nowhere/drill.json", "folder", "file/drill.xml"])
def test_a_report_that_can_not_be_written_is_refused_before_anything_is_done(
    clicks: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").touch()
    answer = invoke("drill", "--scratch", "scratch", "--report", "first.json", "--report", report)
    assert (answer.code, f"--report: {report} can't be written: " in answer.err) == (2, True), answer.err
    assert answer.out == ""
    assert not Path("scratch").exists()
    assert not Path("first.json").exists()


def test_a_report_that_was_there_is_replaced(clicks: Repository, tmp_path: Path) -> None:
    report = tmp_path / "drill.json"
    report.write_text("of yesterday")
    assert invoke("drill", "--report", str(report)).code == 0
    assert json.loads(report.read_text())["ok"] is True


def test_a_report_that_can_not_be_written_any_more_keeps_no_other_from_being_written(
    clicks: Repository, tmp_path: Path
) -> None:
    reports = ["--report", "/dev/full", "--report", str(tmp_path / "drill.json")]
    answer = invoke("drill", *reports)
    assert (answer.code, "/dev/full could not be written: " in answer.err) == (1, True)
    assert json.loads((tmp_path / "drill.json").read_text())["ok"] is True
    flip_newest(clicks, "clicks")
    assert invoke("drill", *reports).code == 3


def test_no_time_at_all_is_refused(clicks: Repository, tmp_path: Path) -> None:
    answer = invoke("drill", "--timeout", "0s", "--scratch", str(tmp_path / "scratch"))
    assert (answer.code, "more than nothing" in answer.err) == (2, True)
    assert not (tmp_path / "scratch").exists()


def test_checkpoints_taken_meanwhile_do_not_disturb_it(orders: Repository) -> None:
    take_checkpoints(orders.pipeline("orders"), 6, 8)
    assert "epoch 8" in invoke("drill").out
