"""Commands that change something: init, savepoint, pin, forget, prune, restore."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import holdfast
from cli.sample_repository import invoke, take_checkpoints
from holdfast import Repository
from holdfast.store import Store
from servers import S3Server


def slots() -> list[str]:
    return [row["slot"] for row in invoke("list", "orders", "--json").document["checkpoints"]]


def objects(store: Store) -> list[str]:
    return [info.key for info in store.list("")]


def test_init_makes_a_repository_and_says_what_was_proven(tmp_path: Path) -> None:
    answer = invoke("init", str(tmp_path / "new"))
    assert answer.code == 0
    assert "create, raced: of several writers at once exactly one wins" in answer.out
    assert "Made the repository" in answer.out
    assert holdfast.open(str(tmp_path / "new")).pipelines() == []


def test_init_again_changes_nothing(tmp_path: Path) -> None:
    first = invoke("init", "--repo", str(tmp_path / "new"), "--json").document
    second = invoke("init", "--repo", str(tmp_path / "new"), "--json").document
    assert (first["made"], second["made"]) == (True, False)
    assert first["repository_id"] == second["repository_id"]
    assert "create, raced" in first["proven"]


def test_init_refuses_a_store_that_ignores_create_if_absent(bad_s3_server: S3Server) -> None:
    options = [word for name, value in bad_s3_server.options.items() for word in ("--repo-option", f"{name}={value}")]
    answer = invoke("init", bad_s3_server.url("cli"), *options, "--json")
    assert answer.code == 6
    assert answer.document["error"]["code"] == "HF-5001"


def test_a_savepoint_names_a_checkpoint_and_can_be_removed(orders: Repository) -> None:
    named = invoke("savepoint", "orders@epoch:3", "audit-2026", "--json").document
    assert (named["slot"], named["savepoint"]) == ("0-3", "audit-2026")
    assert invoke("show", "orders@audit-2026", "--json").document["slot"] == "0-3"
    assert invoke("savepoint", "orders", "audit-2026").code == 5
    assert invoke("savepoint", "orders@audit-2026", "--remove").code == 0
    assert invoke("show", "orders@audit-2026").code == 4


@pytest.mark.parametrize(
    "words",
    [["orders"], ["orders@before-upgrade", "x", "--remove"], ["orders", "--remove"], ["orders@epoch:1", "--remove"]],
)
def test_savepoint_without_a_clear_meaning_is_a_usage_error(orders: Repository, words: list[str]) -> None:
    assert invoke("savepoint", *words).code == 2
    assert list(orders.pipeline("orders").savepoints()) == ["before-upgrade"]


def test_a_running_pipeline_is_asked_for_a_savepoint(orders: Repository) -> None:
    pipeline = holdfast.open(orders.url).pipeline("orders")
    done = threading.Event()

    def run() -> None:
        epoch = 6
        while not done.is_set():
            take_checkpoints(pipeline, epoch, epoch)
            epoch += 1
            time.sleep(0.05)

    runner = threading.Thread(target=run)
    runner.start()
    try:
        answer = invoke("savepoint", "orders@now", "live", "--timeout", "60", "--json")
    finally:
        done.set()
        runner.join()
    assert answer.code == 0
    assert answer.document["epoch"] >= 6
    assert invoke("show", "orders@live", "--json").document["slot"] == answer.document["slot"]


def test_asking_a_pipeline_that_does_not_run_ends_with_five(orders: Repository) -> None:
    answer = invoke("savepoint", "orders@now", "live", "--timeout", "0", "--json")
    assert answer.code == 5
    assert answer.document["error"]["code"] == "HF-4005"


def test_a_pin_is_shown_and_removed(orders: Repository) -> None:
    assert invoke("pin", "orders@epoch:3", "--why", "until June").code == 0
    [pin] = invoke("show", "orders@epoch:3", "--json").document["pins"]
    assert pin["why"] == "until June"
    assert invoke("pin", "orders@epoch:3", "--remove", "--json").document["removed"] == ["until June"]
    assert invoke("show", "orders@epoch:3", "--json").document["pins"] == []
    assert invoke("pin", "orders", "--remove", "--why", "x").code == 2


def test_forget_removes_a_checkpoint_and_says_what_went(orders: Repository) -> None:
    take_checkpoints(orders.pipeline("orders"), 6, 8)
    before = objects(orders.store)
    planned = invoke("forget", "orders@slot:1-1", "--dry-run", "--json")
    assert planned.code == 6  # the newest generation began there
    planned = invoke("forget", "orders@slot:1-0", "--dry-run", "--json").document
    assert objects(orders.store) == before
    done = invoke("forget", "orders@slot:1-0", "--yes", "--json").document
    assert done["removed"] == planned["removed"]
    assert "1-0" not in slots()


@pytest.mark.parametrize("reference", ["orders", "orders@before-upgrade", "orders@epoch:2", "orders@epoch:3"])
def test_forget_refuses_what_is_needed_also_in_a_dry_run(orders: Repository, reference: str) -> None:
    for option in ("--dry-run", "--yes"):
        answer = invoke("forget", reference, option, "--json")
        assert answer.code == 6
        assert answer.document["error"]["code"] == "HF-5002"
    assert len(slots()) == 6


RULES = ["--keep-last", "2"]


def test_prune_without_a_rule_is_a_usage_error(orders: Repository) -> None:
    for words in ([], ["--keep-last", "0"], ["--keep-within", "0d"]):
        assert invoke("prune", *words).code == 2
    assert len(slots()) == 6


def test_a_dry_run_prints_the_plan_that_prune_then_carries_out(orders: Repository) -> None:
    before = objects(orders.store)
    [planned] = invoke("prune", *RULES, "--dry-run", "--json").document["pipelines"]
    assert objects(orders.store) == before
    [done] = invoke("prune", *RULES, "--json").document["pipelines"]
    assert done["plan"] == planned["plan"]
    kept = [each["slot"] for each in done["plan"]["checkpoints"] if each["keep"]]
    assert kept == slots() == ["0-1", "0-2", "0-3", "1-0", "1-1"]
    assert done["removed"]["checkpoints"] == ["0-0"]
    assert all(each["reasons"] for each in done["plan"]["checkpoints"])


def test_prune_shows_a_reason_for_each_checkpoint(orders: Repository) -> None:
    shown = invoke("prune", "orders", *RULES, "-n").out
    assert "drop  orders@slot:0-0" in shown
    assert "savepoint before-upgrade" in shown
    assert "base of the newest generation" in shown
    assert "Nothing was changed." in shown


def test_prune_keeps_what_is_within_a_time(orders: Repository) -> None:
    assert invoke("prune", "--keep-within", "7d").code == 0
    assert len(slots()) == 6
    assert invoke("prune", "--keep-within", "soon").code == 2


def test_prune_sweeps_what_nothing_names_unless_told_not_to(orders: Repository) -> None:
    records = orders.pipeline("orders").records
    loose = f"{records.keys.prefix}data/0000000000-{'a' * 32}/pack-0"
    orders.store.create(loose, b"left by a crash")
    invoke("prune", *RULES, "--no-sweep")
    assert loose in objects(orders.store)
    [done] = invoke("prune", *RULES, "--json").document["pipelines"]
    assert done["swept"]["bytes"] == 15
    assert loose not in objects(orders.store)


def test_prune_goes_on_with_the_others_when_one_pipeline_is_damaged(orders: Repository) -> None:
    take_checkpoints(orders.pipeline("aaa"), 0, 0)
    records = orders.pipeline("aaa").records
    (Path(orders.url.removeprefix("file://")) / records.keys.identity).unlink()
    answer = invoke("prune", *RULES, "--json")
    assert answer.code == 3
    assert {each["pipeline"]: "error" in each for each in answer.document["pipelines"]} == {
        "aaa": True,
        "orders": False,
    }
    assert "0-0" not in slots()


def test_restore_lays_verified_files_into_a_new_folder(orders: Repository, tmp_path: Path) -> None:
    place = tmp_path / "restored"
    answer = invoke("restore", "orders@epoch:4", str(place), "--json")
    assert answer.code == 0
    files = [path for path in place.rglob("*") if path.is_file() and place / "decoded" not in path.parents]
    assert len(files) == answer.document["files"] + 1
    assert (place / "decoded" / "loop" / "states" / "counts").is_file()
    assert (place / "operators/totals/0/0000-snapshot").read_bytes() == bytes([4, 0]) * 30_000
    assert (place / "files/logs/one.txt").read_bytes() == b"line\n" * 4
    again = invoke("restore", "orders@epoch:4", str(place), "--json")
    assert (again.code, again.document["error"]["code"]) == (6, "HF-5008")


def test_quiet_commands_say_nothing_when_all_is_well(orders: Repository, tmp_path: Path) -> None:
    for words in (
        ["init", str(tmp_path / "new")],
        ["savepoint", "orders", "s"],
        ["pin", "orders"],
        ["check"],
        ["restore", "orders", str(tmp_path / "out")],
    ):
        answer = invoke(*words, "--quiet")
        assert (answer.code, answer.out, answer.err) == (0, "", "")


def test_doctor_names_versions_and_ends_well(orders: Repository) -> None:
    answer = invoke("doctor", "--json")
    assert answer.code == 0
    results = {each["what"]: each for each in answer.document["results"]}
    assert results["holdfast"]["found"] == holdfast.__version__
    assert results["store: create, raced"]["status"] == "ok"
    assert results["repository"]["status"] == "ok"
    assert not [info for info in orders.store.list("") if info.key.startswith("probe/")]


def test_doctor_warns_of_a_checkpoint_from_the_future(orders: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.draft.now_ms", lambda: time.time_ns() // 1_000_000 + 86_400_000)
    take_checkpoints(orders.pipeline("orders"), 6, 6)
    answer = invoke("doctor")
    assert answer.code == 0
    assert "which is yet to come" in answer.out


def test_doctor_ends_with_one_when_the_store_can_not_be_used(s3_server: S3Server) -> None:
    wrong = {**s3_server.options, "secret_access_key": "not-the-secret"}
    options = [word for name, value in wrong.items() for word in ("--repo-option", f"{name}={value}")]
    answer = invoke("doctor", "--repo", s3_server.url("doctor"), *options, "--retry-seconds", "1", "--json")
    assert answer.code == 1
    failed = [each for each in answer.document["results"] if each["status"] == "failed"]
    assert failed[0]["what"] == "store: create"
    assert "credentials" in failed[0]["advice"]
    assert "not-the-secret" not in answer.out


def test_doctor_makes_no_folder_for_a_mistyped_path(tmp_path: Path) -> None:
    answer = invoke("doctor", "--repo", str(tmp_path / "mistyped"))
    assert answer.code == 1
    assert "there is no folder" in answer.out
    assert list(tmp_path.iterdir()) == []


def test_doctor_without_a_repository_looks_at_the_machine_alone() -> None:
    answer = invoke("doctor")
    assert answer.code == 0
    assert "Give --repo URL to try a store as well." in answer.out
