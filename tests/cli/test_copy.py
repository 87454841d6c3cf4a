"""holdfast copy, between a disk and a real S3 server, each with its own credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from cli.sample_repository import Answer, invoke, take_checkpoints
from holdfast import Repository
from servers import S3Server


@pytest.fixture
def to_s3(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options for the S3 server, with the secret in a file and the key in the environment."""
    (tmp_path / "secret").write_text(f"{s3_server.secret_access_key}\n")
    monkeypatch.setenv("THE_KEY", s3_server.access_key_id)
    return [
        f"endpoint={s3_server.endpoint}",
        "region=us-east-1",
        "access_key_id=env:THE_KEY",
        f"secret_access_key=file:{tmp_path / 'secret'}",
    ]


def given(option: str, values: list[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def test_a_repository_is_copied_to_s3_and_back(
    orders: Repository, to_s3: list[str], s3_url: str, tmp_path: Path
) -> None:
    there = invoke("copy", orders.url, s3_url, "--init", *given("--to-option", to_s3), "--json")
    assert there.code == 0, there.out
    assert there.document["pipelines"][0]["checkpoints"] == 6
    back = tmp_path / "back"
    again = invoke("copy", s3_url, str(back), "--init", *given("--from-option", to_s3))
    assert again.code == 0
    assert "orders: copied 6 checkpoints" in again.out
    assert invoke("check", "--repo", str(back), "--read-data").code == 0
    listed = invoke("list", "orders", "--repo", s3_url, *given("--repo-option", to_s3), "--json").document
    assert listed == invoke("list", "orders", "--repo", str(back), "--json").document


def test_a_second_copy_moves_only_what_is_new(orders: Repository, tmp_path: Path) -> None:
    target = str(tmp_path / "copy")
    invoke("copy", orders.url, target, "--init")
    take_checkpoints(orders.pipeline("orders"), 6, 6)
    [copied] = invoke("copy", orders.url, target, "--json").document["pipelines"]
    assert copied["checkpoints"] == 1


def test_only_the_named_pipelines_are_copied(orders: Repository, tmp_path: Path) -> None:
    take_checkpoints(orders.pipeline("clicks"), 0, 0)
    assert invoke("copy", orders.url, str(tmp_path / "copy"), "--init", "-p", "clicks").code == 0
    assert [p.name for p in holdfast.open(str(tmp_path / "copy")).pipelines()] == ["clicks"]
    assert invoke("copy", orders.url, str(tmp_path / "copy"), "-p", "nothing").code == 4


def test_a_destination_that_is_not_there_is_made_only_when_asked(orders: Repository, tmp_path: Path) -> None:
    answer = invoke("copy", orders.url, str(tmp_path / "copy"), "--json")
    assert (answer.code, answer.document["error"]["code"]) == (4, "HF-3002")


def test_a_destination_with_a_life_of_its_own_has_diverged(orders: Repository, tmp_path: Path) -> None:
    other = holdfast.open(str(tmp_path / "copy"), create=True)
    take_checkpoints(other.pipeline("orders"), 0, 0)
    answer = invoke("copy", orders.url, str(tmp_path / "copy"), "--json")
    assert (answer.code, answer.document["error"]["code"]) == (5, "HF-4004")


def test_a_checkpoint_damaged_at_the_source_is_told_and_ends_with_three(orders: Repository, tmp_path: Path) -> None:
    manifest = orders.pipeline("orders")["epoch:0"].manifest
    [path] = manifest.objects
    victim = Path(orders.url.removeprefix("file://")) / "pipelines" / "orders" / path
    victim.write_bytes(victim.read_bytes()[:-1])
    answer = invoke("copy", orders.url, str(tmp_path / "copy"), "--init")
    assert answer.code == 3
    assert "orders@slot:0-0 was not copied" in answer.out


def test_a_record_damaged_at_the_source_is_told_and_ends_with_three(orders: Repository, tmp_path: Path) -> None:
    key = orders.pipeline("orders").records.keys.savepoint("before-upgrade", 0)
    orders.store.put(key, b"nothing that can be read")
    answer = invoke("copy", orders.url, str(tmp_path / "copy"), "--init")
    assert (answer.code, f"{key} was not copied: " in answer.out) == (3, True)
    assert "orders: copied 6 checkpoints" in answer.out
    [copied] = invoke("copy", orders.url, str(tmp_path / "copy"), "--json").document["pipelines"]
    assert (copied["ok"], [lost["key"] for lost in copied["damaged"]]) == (False, [key])


def test_a_record_damaged_in_the_copy_is_no_divergence(orders: Repository, tmp_path: Path) -> None:
    target = str(tmp_path / "copy")
    invoke("copy", orders.url, target, "--init")
    holdfast.open(target).store.put(orders.pipeline("orders").records.keys.claim(0), b"nothing that can be read")
    answer = invoke("copy", orders.url, target, "--json")
    assert (answer.code, answer.document["error"]["code"]) == (3, "HF-2008")


def test_prune_leaves_a_copy_to_its_copier(orders: Repository, tmp_path: Path) -> None:
    target = str(tmp_path / "copy")
    invoke("copy", orders.url, target, "--init")
    answer = invoke("prune", "--repo", target, "--keep-last", "1")
    assert answer.code == 0
    assert "orders is a copy and is left to its copier" in answer.out
    assert invoke("prune", "orders", "--repo", target, "--keep-last", "1").code == 6
    assert "orders (copy)" in invoke("list", "--repo", target).out


def wrong_secret(s3_server: S3Server, s3_url: str, secret: str, *words: str) -> Answer:
    options = {**s3_server.options, "secret_access_key": secret}
    pairs = given("--repo-option", [f"{name}={value}" for name, value in options.items()])
    return invoke("list", "--repo", s3_url, *pairs, "--retry-seconds", "1", *words)


@pytest.mark.parametrize("words", [[], ["--json"], ["--debug"]])
def test_a_wrong_secret_is_denied_and_never_shown(s3_server: S3Server, s3_url: str, words: list[str]) -> None:
    answer = wrong_secret(s3_server, s3_url, "sesame-open", *words)
    assert answer.code == 1
    assert "HF-1002" in answer.out + answer.err
    assert "sesame-open" not in answer.out + answer.err
