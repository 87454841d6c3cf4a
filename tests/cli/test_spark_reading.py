"""Commands that read what Spark wrote: show and diff of its checkpoints, check of its directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast
from cli.sample_repository import invoke
from cli.test_terminal import ESCAPE, on_terminal
from holdfast import Repository
from holdfast.store import open_store
from holdfast.store.local_directory import LocalDirectory
from servers import S3Server
from spark.directories import MadeDirectory
from spark.harms import harm, sidecar, without_sidecars
from spark.samples import bring_back, capture, samples


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """An empty repository on disk, which HOLDFAST_REPO names."""
    monkeypatch.setenv("HOLDFAST_REPO", str(tmp_path / "repository"))
    return holdfast.open(str(tmp_path / "repository"), create=True)


@pytest.fixture
def clicks(repository: Repository, tmp_path: Path) -> Repository:
    """Pipeline `clicks`: two batches of a query that reads two topics of Kafka, one with 40 partitions."""
    made = MadeDirectory(tmp_path / "clicks")
    for batch in range(2):
        made.start()
        path = made.root / f"offsets/{batch}"
        lines = path.read_text().split("\n")
        offset = {"clicks": {str(p): 1000 * p + 5 * batch for p in range(40)}, "users": {"0": 7 + batch, "1": 70}}
        made.batch()
        made.write(f"offsets/{batch}", "\n".join([*lines[:2], json.dumps(offset)]))
        capture(repository.pipeline("clicks"), LocalDirectory(made.root))
    return repository


# ---- show and diff ----


def test_show_has_kafka_as_a_table_of_topics_and_partitions(clicks: Repository) -> None:
    shown = invoke("show", "clicks", "--utc").out
    lines = [line.split() for line in shown.splitlines()]
    assert ["source", "topic", "partition", "offset"] in lines
    assert ["0", "clicks", "all", "40", "780,200"] in lines
    assert ["0", "users", "0", "8"] in lines
    assert ["0", "clicks", "0", "5"] not in lines  # too many to name
    assert "More than 32 partitions are summed up" in shown
    source = invoke("show", "clicks", "--json").document["spark"]["sources"][0]
    assert len(source["positions"]) == 42
    assert source["positions"][3] == {"topic": "clicks", "partition": 3, "offset": 3005}


def test_show_explains_a_real_checkpoint_without_naming_every_file(repository: Repository) -> None:
    with bring_back(samples()["join"]) as root:
        capture(repository.pipeline("join"), LocalDirectory(root))
    shown = invoke("show", "join", "--utc").out
    assert "Operator 0: symmetricHashJoin (stream-stream join), 3 partitions" in shown
    assert "state        RocksDB with changelogs, checkpoint format 1, compressed with lz4" in shown
    assert "engine       spark 4." in shown
    assert f"directory    file:{samples()['join'].checkpoint}" in shown
    assert "(a restart goes on with batch" in shown
    assert "  spark.sql.shuffle.partitions = 3" in shown
    assert "2023-11-14" in next(line for line in shown.splitlines() if line.startswith("watermark"))
    assert ".sst" not in shown
    assert "Findings" not in shown
    document = invoke("show", "join", "--json").document
    assert any(name.endswith(".sst") for name in document["files"])
    assert len(document["spark"]["operators"][0]["stores"]) == 12


def test_show_of_a_query_without_state_says_so(repository: Repository, tmp_path: Path) -> None:
    made = MadeDirectory(tmp_path / "stateless", operators=0)
    made.batch()
    made.batch()
    capture(repository.pipeline("stateless"), LocalDirectory(made.root))
    assert "none: the query has no stateful operator" in invoke("show", "stateless").out


def test_diff_sums_offsets_and_files_up(clicks: Repository) -> None:
    shown = invoke("diff", "clicks@epoch:0", "clicks").out
    lines = [line.split() for line in shown.splitlines()]
    assert ["0", "users:0", "7", "8", "+1"] in lines
    assert ["0", "all", "+201"] in lines
    assert "(+1.0 s)" in shown
    assert ["operator", "0", "2"] in [line[:3] for line in lines]
    assert "2.delta" not in shown
    found = invoke("diff", "clicks@epoch:0", "clicks", "--json").document
    assert found["totals"] == {"0": 201}
    assert [(each["operator"], each["added"]) for each in found["state"]] == [(None, 3), (0, 2)]
    assert "state/0/0/2.delta" in {each["name"] for each in found["artifacts"]}


@pytest.mark.parametrize("columns", ["80", "120"])
def test_tables_of_spark_fit_on_a_terminal(clicks: Repository, columns: str) -> None:
    with bring_back(samples()["join"]) as root:
        capture(clicks.pipeline("join"), LocalDirectory(root))
    for words in (["show", "join"], ["show", "clicks"], ["diff", "clicks@epoch:0", "clicks"]):
        code, written = on_terminal(*words, COLUMNS=columns)
        assert code == 0
        for line in ESCAPE.sub("", written).splitlines():
            if not line.strip().startswith(("spark.", "directory")):
                assert len(line.rstrip()) <= int(columns), line


# ---- check ----


def test_check_of_a_whole_directory_needs_no_repository() -> None:
    answer = invoke("check", str(samples()["hdfs"].pristine))
    assert answer.code == 0
    assert "a restart goes on after batch" in answer.out
    assert "by a checksum beside them" in answer.out
    assert "operator 0    stateStoreSave, 3 partitions" in answer.out
    document = invoke("check", str(samples()["hdfs"].pristine), "--json").document
    assert document["ok"] is True
    assert document["newest_whole"] == document["newest_committed"] == document["whole"][-1]
    assert (document["faults"], document["compared"]) == ([], None)
    assert invoke("check", str(samples()["hdfs"].pristine), "--quiet").out == ""


def test_check_says_what_is_missing_what_it_means_and_ends_with_three() -> None:
    with bring_back(samples()["hdfs"]) as root:
        newest = invoke("check", str(root), "--json").document["newest_committed"]
        for path in root.glob("state/0/1/*.snapshot"):
            path.unlink()
        (root / "state/0/1/4.delta").unlink()
        without_sidecars(root)
        answer = invoke("check", str(root))
        assert answer.code == 3
        assert f"damage: state/0/1/4.delta (batches 3-{newest})" in answer.out
        assert "-> Spark fails in its first batch (CANNOT_LOAD_STATE_STORE)" in answer.out
        assert f"damaged: batch {newest} can't be loaded, and the newest that is whole is 2" in answer.out
        quiet = invoke("check", str(root), "-q")
        assert (quiet.code, quiet.out.count("damage: ")) == (3, 1)
        document = invoke("check", str(root), "--json").document
        assert (document["ok"], document["newest_whole"], document["whole"]) == (False, 2, [0, 1, 2])


def test_check_shows_the_first_of_many_faults_and_json_all(repository: Repository) -> None:
    with bring_back(samples()["join"]) as root:
        for path in [*root.glob("state/**/SSTs/*.sst")]:
            harm(path, "one bit flipped")
        answer = invoke("check", str(root), "--read-data")
        faults = invoke("check", str(root), "--read-data", "--json").document["faults"]
        assert len(faults) > 20
        assert f"… and {len(faults) - 20} more; --json has each." in answer.out


def test_check_with_a_pipeline_finds_what_no_checksum_tells(repository: Repository) -> None:
    with bring_back(samples()["join"]) as root:
        without_sidecars(root)
        manifest = capture(repository.pipeline("join"), LocalDirectory(root))
        good = invoke("check", str(root), "-p", "join")
        assert good.code == 0
        assert f"compared with  join@slot:0-0, epoch {manifest.epoch}" in good.out
        table = next(name for name in sorted(manifest.files) if name.endswith(".sst"))
        harm(root / table, "one bit flipped")
        assert invoke("check", str(root)).code == 0  # nothing in the directory itself tells
        answer = invoke("check", str(root), "-p", "join", "--json")
        assert answer.code == 3
        [fault] = answer.document["faults"]
        assert (fault["name"], fault["what"]) == (table, "its bytes are not those that were captured")
        assert answer.document["compared"]["differing"][0]["why"] == "damaged"
        assert "--heal" in invoke("check", str(root), "-p", "join").out


def test_check_of_a_directory_that_the_pipeline_never_captured_is_a_warning(repository: Repository) -> None:
    with bring_back(samples()["join"]) as root:
        capture(repository.pipeline("join"), LocalDirectory(root))
    answer = invoke("check", str(samples()["hdfs"].pristine), "-p", "join")
    assert answer.code == 0
    assert "has no checkpoint of it" in answer.out
    assert invoke("check", str(samples()["hdfs"].pristine), "-p", "nothing").code == 4


def test_check_tells_each_fault_once_and_as_damage_if_the_checkpoint_knows_better(repository: Repository) -> None:
    with bring_back(samples()["tws"]) as root:
        manifest = capture(repository.pipeline("tws"), LocalDirectory(root))
        beside = next(name for name in sorted(manifest.files) if name.endswith(".changelog.crc"))
        (root / beside).unlink()
        alone = invoke("check", str(root), "--json")
        assert (alone.code, [fault["severity"] for fault in alone.document["faults"]]) == (0, ["warning"])
        compared = invoke("check", str(root), "-p", "tws", "--json")
        assert compared.code == 3
        assert [(f["severity"], f["name"]) for f in compared.document["faults"]] == [("damage", beside)]


def test_check_reads_older_batches_only_when_asked(repository: Repository) -> None:
    with bring_back(samples()["hdfs"]) as root:
        harm(root / "state/0/2/1.delta", "one bit flipped")
        assert "warning" not in invoke("check", str(root)).out
        answer = invoke("check", str(root), "--read-data")
        assert answer.code == 0
        assert "warning: state/0/2/1.delta" in answer.out


def test_check_of_a_directory_in_an_object_store_takes_its_options(s3_server: S3Server, s3_url: str) -> None:
    store = open_store(s3_url, s3_server.options)
    root = samples()["hdfs"].pristine
    for path in root.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            store.put(str(path.relative_to(root)), path.read_bytes())
    options = [word for name, value in s3_server.options.items() for word in ("--dir-option", f"{name}={value}")]
    answer = invoke("check", s3_url.replace("s3://", "s3a://"), *options)
    assert answer.code == 0
    assert "older ones were not looked at" in answer.out
    assert "by checksums inside" in answer.out
    store.delete(["metadata"])
    assert invoke("check", s3_url, *options).code == 3


@pytest.mark.parametrize(
    "words",
    [
        ["./here", "--repair"],
        ["./here", "--read-data=5"],
        ["orders", "--dir-option", "region=x"],
        ["-p", "orders"],
    ],
)
def test_check_with_words_that_do_not_go_together_is_a_usage_error(repository: Repository, words: list[str]) -> None:
    assert invoke("check", *words).code == 2


def test_check_of_a_folder_without_a_checkpoint_ends_with_four(tmp_path: Path) -> None:
    answer = invoke("check", f"{tmp_path}/", "--json")
    assert (answer.code, answer.document["error"]["code"]) == (4, "HF-3005")
    assert invoke("check", "hdfs://somewhere/else").code == 2


def test_control_characters_in_a_directory_never_reach_the_terminal() -> None:
    with bring_back(samples()["hdfs"]) as root:
        (root / "commits" / ".9.\x1b[31mred.tmp").touch()
        sidecar(root / "metadata").unlink()
        _, written = on_terminal("check", str(root))
        assert "\\x1b" in written
        assert all(c.isprintable() or c in "\r\n" for c in ESCAPE.sub("", written))
