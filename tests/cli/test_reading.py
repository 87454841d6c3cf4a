"""Commands that only look: list, show, diff, du, check."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import holdfast
from cli.sample_repository import invoke, make_orders, take_checkpoints
from holdfast import Description, Repository, SinkStatus
from holdfast.layout import Slot


def object_of(orders: Repository, slot: Slot) -> Path:
    """The file that holds the bytes which this checkpoint brought."""
    manifest = orders.pipeline("orders").records.manifest(slot)
    [path] = [path for path in manifest.objects if path.startswith(manifest.upload)]
    return Path(orders.url.removeprefix("file://")) / "pipelines" / "orders" / path


def manifest_file(orders: Repository, slot: Slot) -> Path:
    keys = orders.pipeline("orders").records.keys
    return Path(orders.url.removeprefix("file://")) / keys.manifest(slot)


def test_list_shows_each_pipeline_with_its_newest_checkpoint(orders: Repository) -> None:
    take_checkpoints(orders.pipeline("clicks"), 0, 0)
    clicks, row = invoke("list", "--json").document["pipelines"]
    assert (clicks["name"], clicks["checkpoints"]) == ("clicks", 1)
    assert (row["name"], row["checkpoints"], row["epoch"], row["generation"]) == ("orders", 6, 5, 1)
    assert row["savepoints"] == ["before-upgrade"]
    assert row["newest"] == "1-1"
    assert row["bytes"] > 100_000
    shown = invoke("list").out.splitlines()
    assert shown[0].split() == ["pipeline", "checkpoints", "epoch", "age", "bytes", "generation", "savepoints"]
    assert shown[2].split()[:3] == ["orders", "6", "5"]
    assert shown[2].endswith("before-upgrade")


def test_list_of_an_empty_repository_says_so(tmp_path: Path) -> None:
    holdfast.open(str(tmp_path / "new"), create=True)
    answer = invoke("list", "--repo", str(tmp_path / "new"))
    assert (answer.code, answer.out) == (0, "The repository has no pipelines yet.\n")


def test_list_of_a_pipeline_is_oldest_first_with_what_holds_each(orders: Repository) -> None:
    rows = invoke("list", "orders", "--json").document["checkpoints"]
    assert [row["slot"] for row in rows] == ["0-0", "0-1", "0-2", "0-3", "1-0", "1-1"]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert rows[1]["savepoints"] == ["before-upgrade"]
    assert rows[2]["pins"] == ["audit"]
    assert rows[5]["parent"] == "1-0"
    assert rows[1]["bytes_shared"] > rows[1]["bytes_new"] > 20_000
    assert all(row["sinks"] == {"table": "committed", "topic": "committed"} for row in rows)
    assert "savepoint before-upgrade" in invoke("list", "orders").out


def test_an_id_prefix_that_list_shows_names_its_checkpoint(orders: Repository) -> None:
    lines = invoke("list", "orders").out.splitlines()
    slot, prefix = lines[3].split()[:2]
    assert invoke("show", f"orders@{prefix}", "--json").document["slot"] == slot


def test_abandoned_checkpoints_are_listed_only_when_asked_for(orders: Repository) -> None:
    # The newest manifest is damaged, so the next run begins before it and leaves it behind.
    manifest_file(orders, Slot(1, 1)).write_bytes(b"x" * 4000)
    again = holdfast.open(orders.url).pipeline("orders")
    take_checkpoints(again, 5, 5)
    slots = [row["slot"] for row in invoke("list", "orders", "--json").document["checkpoints"]]
    assert slots == ["0-0", "0-1", "0-2", "0-3", "1-0", "2-0"]
    answer = invoke("list", "orders", "--abandoned")
    assert answer.code == 3
    assert answer.out.splitlines()[1].startswith("(1-1)")
    assert "damaged" in answer.out.splitlines()[1]


def test_the_recorded_reach_is_where_each_sink_stood_and_an_option_that_needs_a_pipeline_says_so(
    orders: Repository,
) -> None:
    rows = invoke("list", "orders", "--reach", "--json").document["positions"]
    assert [row["slot"] for row in rows] == ["0-0", "0-1", "0-2", "0-3", "1-0", "1-1"]
    assert rows[1]["savepoints"] == ["before-upgrade"]
    assert rows[1]["sinks"] == {"table": "rows 1", "topic": "rows 1"}
    assert "table at rows 5, topic at rows 5" in invoke("list", "orders", "--reach").out
    assert invoke("list", "--reach").code == 2


def test_the_place_of_a_pipelines_sink_is_what_its_commit_gave(orders: Repository) -> None:
    pipeline = orders.pipeline("windows")
    place = {"at": {"epoch": 3, "offsets": "{}"}, "decided": 0}
    with pipeline.recover() as checkpointer:
        draft = checkpointer.begin(3)
        held = {"table": {**place, "position": {"version": 12}}, "log": place}
        committed = {name: SinkStatus(status="committed") for name in held}
        checkpointer.save_manifest(draft, Description(sinks=committed, sink_positions=held))
    [row] = invoke("list", "windows", "--reach", "--json").document["positions"]
    assert row["sinks"] == {"log": "epoch 3", "table": "version 12"}


def test_list_shows_the_others_when_one_pipeline_is_damaged(orders: Repository) -> None:
    take_checkpoints(orders.pipeline("clicks"), 0, 0)
    root = Path(orders.url.removeprefix("file://"))
    (root / orders.pipeline("orders").records.keys.identity).unlink()
    answer = invoke("list", "--json")
    clicks, damaged = answer.document["pipelines"]
    assert answer.code == 3
    assert clicks["problem"] is None
    assert "pipeline.json is gone" in damaged["problem"]


def test_list_shows_what_is_left_and_what_is_missing_when_a_beginning_is_lost(orders: Repository) -> None:
    root, keys = Path(orders.url.removeprefix("file://")), orders.pipeline("orders").records.keys
    (root / keys.base(1)).unlink()
    answer = invoke("list", "orders")
    assert answer.code == 3
    assert "(1-0)" in answer.out
    assert "as far as it can be told" in answer.out
    assert "problem: missing: the base of generation 1" in answer.out
    assert "base of generation 1" in invoke("list", "orders", "--json").document["missing"][0]
    (row,) = invoke("list", "--json").document["pipelines"]
    assert "base of generation 1" in row["problem"]
    assert [invoke("show", "orders").code, invoke("show", "orders@slot:1-1").code] == [3, 0]


def test_a_lost_newest_checkpoint_ends_list_show_and_restore_with_damage(orders: Repository, tmp_path: Path) -> None:
    manifest_file(orders, Slot(1, 1)).unlink()
    for words in (("list",), ("list", "orders"), ("show", "orders"), ("restore", "orders", str(tmp_path / "to"))):
        answer = invoke(*words)
        assert answer.code == 3
        assert "1-1, which the hint names" in answer.out + answer.err
    assert not (tmp_path / "to").exists()


def test_a_pipeline_whose_records_are_all_lost_is_not_one_without_checkpoints(orders: Repository) -> None:
    for number in range(4):
        manifest_file(orders, Slot(0, number)).unlink()
    for number in range(2):
        manifest_file(orders, Slot(1, number)).unlink()
    answer = invoke("list", "orders")
    assert answer.code == 3
    assert "yet" not in answer.out


def test_show_tells_offsets_operators_states_and_sinks(orders: Repository) -> None:
    shown = invoke("show", "orders", "--json").document
    assert (shown["slot"], shown["epoch"], shown["on_timeline"]) == ("1-1", 5, True)
    kafka, postgres = shown["sources"]
    assert kafka["offsets"] == {"partition-0": "1035", "partition-2": "1037", "partition-10": "1045"}
    assert postgres["offsets"] == {"lsn": "0/12AB05"}
    [operator] = shown["operators"]
    assert (operator["name"], operator["snapshots"], operator["deltas"]) == ("totals", 3, 1)
    assert operator["partitions"][2] == {"partition": 2, "snapshots": 1, "deltas": 1, "bytes": 80_000}
    [loop] = shown["driver_states"]
    assert (loop["record"]["stream"], loop["record"]["sequence"]) == ("orders", 50)
    assert loop["record"]["states"][0]["value"] == "{'apples': 5, 'pears': [1, 2]}"
    assert shown["sinks"][0] == {
        "name": "table",
        "status": "committed",
        "why": None,
        "epoch": 5,
        "position": {"rows": 5},
    }
    assert shown["files"] == {"logs/one.txt": 25}
    assert shown["fingerprint"] == {"operators": "version 1", "sources": "same"}


def test_show_as_text_holds_what_a_person_looks_for(orders: Repository) -> None:
    text = invoke("show", "orders@before-upgrade", "--utc").out
    for expected in ("orders@slot:0-1", "before-upgrade", "partition-10", "0/12AB01", "totals", "apples", "rows=1"):
        assert expected in text


def test_show_tells_which_sink_failed_and_why(orders: Repository) -> None:
    take_checkpoints(orders.pipeline("orders"), 6, 6, fail_last=True)
    table, topic = invoke("show", "orders", "--json").document["sinks"]
    assert (table["status"], topic["status"], topic["why"]) == ("committed", "failed", "OSError: disk full")
    newest = invoke("list", "orders", "--json").document["checkpoints"][-1]
    assert newest["sinks"] == {"table": "committed", "topic": "failed"}


def test_commit_tokens_of_sinks_are_never_shown(orders: Repository) -> None:
    assert "up_to" not in invoke("show", "orders", "--json").out


def test_show_generations_tells_who_claimed_and_where_each_began(orders: Repository) -> None:
    first, second = invoke("show", "orders", "--generations", "--json").document["generations"]
    assert (first["generation"], first["began"], first["is_current"]) == (0, "fresh", False)
    assert (second["generation"], second["began"], second["is_current"]) == (1, "at 0-3", True)
    assert second["why"] == "start"
    assert "at 0-3" in invoke("show", "orders", "--generations").out


def test_diff_tells_by_how_much_numeric_offsets_advanced(orders: Repository) -> None:
    found = invoke("diff", "orders@epoch:1", "orders@epoch:3", "--json").document
    assert (found["epochs"], found["records"]) == (2, 200)
    moved = found["sources"]["kafka"]
    assert [change["name"] for change in moved] == ["partition-0", "partition-2", "partition-10"]
    assert all(change["advanced"] == 14 for change in moved)
    assert found["sources"]["postgres"] == [
        {"name": "lsn", "before": "0/12AB01", "after": "0/12AB03", "advanced": None}
    ]
    assert found["watermark"]["advanced"] == 2000
    assert found["fingerprint"] == [
        {"name": "operators", "before": "version 0", "after": "version 1", "advanced": None}
    ]


def test_diff_tells_which_artifacts_changed(orders: Repository) -> None:
    found = invoke("diff", "orders@epoch:1", "orders@epoch:2", "--json").document
    changed = {(a["what"], a["name"], a["partition"]): a["change"] for a in found["artifacts"]}
    assert changed == {
        ("operator", "totals", 2): "changed",
        ("driver state", "loop", None): "changed",
        ("file", "logs/one.txt", None): "changed",
    }
    assert found["bytes_added"] > 20_000
    assert "+14" in invoke("diff", "orders@epoch:1", "orders@epoch:3").out


def test_diff_of_a_checkpoint_with_itself_is_empty(orders: Repository) -> None:
    found = invoke("diff", "orders", "orders", "--json").document
    assert not any(found[name] for name in ("sources", "artifacts", "fingerprint", "bytes_added", "bytes_removed"))
    assert "all the same" in invoke("diff", "orders", "orders").out


def test_du_adds_up(orders: Repository) -> None:
    [used] = invoke("du", "orders", "--json").document["pipelines"]
    assert len(used["checkpoints"]) == 6
    assert all(each["total"] == each["shared"] + each["exclusive"] for each in used["checkpoints"])
    exclusive = sum(each["exclusive"] for each in used["checkpoints"])
    assert used["total"] == used["shared"] + exclusive + used["loose"] + used["records"]
    assert invoke("du").out.splitlines()[1].split()[:2] == ["orders", "6"]
    assert "orders@slot:1-1" in invoke("du", "orders").out


def test_check_of_a_whole_repository_is_good(orders: Repository) -> None:
    answer = invoke("check", "--read-data")
    assert answer.code == 0
    assert answer.out.startswith("orders: good (6 checkpoints")
    assert "read" in answer.out


def test_check_finds_a_flipped_byte_only_by_reading_data(orders: Repository) -> None:
    victim = object_of(orders, Slot(0, 3))
    data = bytearray(victim.read_bytes())
    data[100] ^= 1
    victim.write_bytes(data)
    assert invoke("check", "orders").code == 0
    answer = invoke("check", "--read-data", "orders", "--json")
    assert answer.code == 3
    [report] = answer.document["pipelines"]
    assert report["damaged"] == ["0-3"]
    assert report["faults"][0]["kind"] == "flipped"
    assert "can't be restored: 0-3" in invoke("check", "orders", "--read-data=100").out


def test_check_with_repair_mends_a_lost_hint(orders: Repository) -> None:
    keys = orders.pipeline("orders").records.keys
    (Path(orders.url.removeprefix("file://")) / keys.latest).unlink()
    answer = invoke("check", "orders", "--repair", "--json")
    assert answer.code == 0
    assert answer.document["pipelines"][0]["repaired"] == [f"{keys.latest}: now names 1-1"]
    assert invoke("check", "orders", "--json").document["pipelines"][0]["faults"] == []


def test_check_with_repair_does_not_call_it_a_repair_when_something_is_left_as_it_was(orders: Repository) -> None:
    manifest_file(orders, Slot(0, 2)).write_bytes(b"x" * 4000)
    answer = invoke("check", "orders", "--repair")
    assert answer.code == 3
    assert "left      0-2: not set aside, pin: audit" in answer.out
    assert "repaired" not in answer.out


def test_times_are_shown_in_utc_when_asked(orders: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        local, utc = invoke("show", "orders").out, invoke("show", "orders", "--utc").out
    finally:
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
    assert "2025-11-15 18:46:45 JST" in local
    assert "JST" not in utc
    assert "2025-11-15 09:46:45 UTC" in utc


def test_a_repository_in_memory_is_read_as_well() -> None:
    make_orders("memory://cli-reading")
    assert invoke("list", "orders", "--repo", "memory://cli-reading").code == 0
