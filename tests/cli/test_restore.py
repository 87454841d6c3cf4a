"""`holdfast restore` and `holdfast fork` of a Spark query: what they lay down, say and refuse."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import holdfast
from builders import dump
from cli.sample_repository import invoke
from holdfast import Repository
from holdfast.spark.capture import Capturer
from holdfast.store import open_store
from holdfast.store.local_directory import LocalDirectory
from servers import S3Server
from spark.directories import HDFS, MadeDirectory
from spark.test_sink_log import log_in, log_of, visible, write_log


@pytest.fixture
def directory(tmp_path: Path) -> MadeDirectory:
    """A query that reads Kafka."""
    made = MadeDirectory(tmp_path / "ck", provider=HDFS)
    for _ in range(3):
        add_batch(made)
    return made


def add_batch(made: MadeDirectory) -> None:
    made.batch()
    last = made.next_batch - 1
    head = (made.root / f"offsets/{last}").read_text().split("\n")[:2]
    made.write(f"offsets/{last}", "\n".join([*head, '{"orders":{"0":10,"1":20}}']))


@pytest.fixture
def spark(tmp_path: Path, directory: MadeDirectory, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository, which HOLDFAST_REPO names, with checkpoints of epoch 2 (savepoint `old`) and 4."""
    monkeypatch.setenv("HOLDFAST_REPO", str(tmp_path / "repository"))
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    capturer = Capturer(repository.pipeline("q").records, LocalDirectory(directory.root))
    capturer.take(2)
    repository.pipeline("q")["epoch:2"].savepoint("old")
    time.sleep(0.01)
    add_batch(directory)
    add_batch(directory)
    capturer.take(4)
    capturer.close()
    return repository


def test_a_restore_says_how_to_start_and_which_sinks_would_skip(spark: Repository, tmp_path: Path) -> None:
    answer = invoke("restore", "q", str(tmp_path / "new place"))
    assert answer.code == 0, answer.err
    assert f"Restored q@slot:0-1 (epoch 4) to file:{tmp_path}/new place" in answer.out
    assert f'.option("checkpointLocation", "file:{tmp_path}/new place")' in answer.out
    for word in ("file sink", "txnAppId", "foreachBatch", "next batch is 5"):
        assert word in answer.out
    assert (tmp_path / "new place" / "offsets" / "4").exists()


def test_quiet_still_says_what_must_be_known(spark: Repository, tmp_path: Path) -> None:
    shown = invoke("restore", "q", str(tmp_path / "new"), "--quiet").out
    assert "checkpointLocation" in shown
    assert "txnAppId" in shown
    assert "all verified" not in shown


def test_every_way_to_name_a_checkpoint_works(spark: Repository, tmp_path: Path) -> None:
    [old, new] = spark.pipeline("q").checkpoints()
    between = datetime.fromtimestamp((new.head.timestamp_ms - 1) / 1000, UTC).isoformat()
    named = {
        "q": 4,
        "q@latest": 4,
        "q@old": 2,
        f"q@{old.id}": 2,
        f"q@{new.id}": 4,
        "q@epoch:2": 2,
        "q@slot:0-1": 4,
        f"q@time:{between}": 2,
        "q@time:2100-01-01T10:00": 4,
    }
    for number, (reference, epoch) in enumerate(named.items()):
        answer = invoke("restore", reference, str(tmp_path / str(number)), "--json")
        assert answer.document["epoch"] == epoch, reference
    assert invoke("restore", "q@time:2020-01-01", str(tmp_path / "x")).code == 4
    assert invoke("restore", "q@epoch:3", str(tmp_path / "x")).code == 4
    assert "PIPELINE@time:2026-11-15T10:00" in invoke("restore", "--help").out


def test_json_has_it_all(spark: Repository, tmp_path: Path, directory: MadeDirectory) -> None:
    told = invoke("restore", "q@old", str(tmp_path / "new"), "--json", "--set-offset", "0:orders:1=21").document
    assert told["destination"] == f"file:{tmp_path}/new"
    assert told["start"] == f'.option("checkpointLocation", "file:{tmp_path}/new")'
    assert (told["epoch"], told["slot"], told["fork"]) == (2, "0-0", False)
    assert told["query_id"] == directory.query_id
    assert told["edits"] == ["source 0, orders-1: 20 -> 21 (skips 1)"]
    assert any("txnAppId" in remark for remark in told["remarks"])
    assert told["files"] == len(spark.find("q@old").manifest.files)


def test_edits_are_shown(spark: Repository, tmp_path: Path) -> None:
    shown = invoke("restore", "q", str(tmp_path / "new"), "--set-offset", "0:orders:0=11").out
    assert "changed" in shown
    assert "source 0, orders-0: 10 -> 11 (skips 1)" in shown


def test_a_fork_has_an_id_of_its_own(spark: Repository, tmp_path: Path, directory: MadeDirectory) -> None:
    told = invoke("fork", "q", str(tmp_path / "new"), "--json").document
    assert told["fork"]
    assert told["query_id"] != directory.query_id
    shown = invoke("fork", "q@old", str(tmp_path / "newer")).out
    assert "Forked q@slot:0-0 (epoch 2)" in shown
    assert "(new)" in shown
    assert "sinks of its own" in shown
    assert invoke("fork", "q", str(tmp_path / "x"), "--file-sink", "/x", "--apply-sink").code == 2


def test_what_is_in_the_way_is_refused_with_its_code(
    spark: Repository, tmp_path: Path, directory: MadeDirectory
) -> None:
    cases = {
        (str(directory.root),): (6, "HF-5008"),
        (str(tmp_path / "n"), "--set-offset", "0:other:1=2"): (2, "HF-6004"),
        (str(tmp_path / "n"), "--map-path", "/a=/b"): (2, "HF-6004"),
        (str(tmp_path / "n"), "--file-sink", str(tmp_path)): (6, "HF-5015"),
        (str(tmp_path / "n"), "--spark", "x"): (2, "HF-6004"),
        ("memory://x",): (2, "HF-6002"),
        ("hdfs://x/y",): (2, "HF-6002"),
    }
    for words, (code, error) in cases.items():
        for verb in ("restore", "fork"):
            answer = invoke(verb, "q", *words, "--json")
            assert (answer.code, answer.document["error"]["code"]) == (code, error), words
    assert not (tmp_path / "n").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--map-path", "x"],
        ["--map-path", "/a=b"],
        ["--map-path", "/a=/b", "--map-path", "/a=/c"],
        ["--apply-sink"],
        ["--dest-option", "x"],
    ],
)
def test_what_is_misspelled_is_a_matter_of_usage(spark: Repository, tmp_path: Path, words: list[str]) -> None:
    assert invoke("restore", "q", str(tmp_path / "n"), *words).code == 2
    assert not (tmp_path / "n").exists()


def test_names_of_folders_may_hold_the_sign_between_old_and_new(spark: Repository, tmp_path: Path) -> None:
    answer = invoke("restore", "q", str(tmp_path / "n"), "--map-path", "/a/k=v/x=s3a://b/k=v", "--json")
    assert "/a/k=v/x -> s3a://b/k=v" in answer.document["error"]["message"]


def test_a_file_sink_is_cut_back(spark: Repository, tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    write_log(sink, log_of(f"file://{sink}", 9))
    shown = invoke("restore", "q@old", str(tmp_path / "one"), "--file-sink", str(sink)).out
    assert f"Put file:{tmp_path}/one-sink-log in the place of file:{sink}/_spark_metadata" in shown
    assert visible(log_in(sink / "_spark_metadata")) == list(range(10))
    shown = invoke("restore", "q@old", str(tmp_path / "two"), "--file-sink", str(sink), "--apply-sink").out
    assert "old sink log" in shown
    assert "ends at batch 2 now" in shown
    assert visible(log_in(sink / "_spark_metadata")) == list(range(3))


def test_a_restore_into_a_bucket_takes_the_options_of_its_store(
    spark: Repository, s3_server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**s3_server.options}
    monkeypatch.setenv("THE_SECRET", given.pop("secret_access_key"))
    options = [word for pair in given.items() for word in ("--dest-option", "=".join(pair))]
    options += ["--dest-option", "secret_access_key=env:THE_SECRET"]
    url = s3_url.replace("s3://", "s3a://")
    answer = invoke("restore", "q", url, *options, "--json")
    assert answer.code == 0, answer.out
    assert answer.document["destination"] == url
    assert len(dump(open_store(s3_url, s3_server.options))) == answer.document["files"] + 1
    again = invoke("restore", "q", url, *options, "--json")
    assert again.document["error"]["code"] == "HF-5008"


def test_a_loop_takes_none_of_this(orders: Repository, tmp_path: Path) -> None:
    assert invoke("restore", "orders", str(tmp_path / "n"), "--map-path", "/a=/b", "--json").code == 2
    assert invoke("restore", "orders", "s3://bucket/x", "--json").document["error"]["code"] == "HF-6002"
    assert invoke("fork", "orders", str(tmp_path / "n"), "--json").document["error"]["code"] == "HF-5009"
    assert not (tmp_path / "n").exists()
