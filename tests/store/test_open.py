"""From an address to a store: forms, options, secrets, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from holdfast.errors import AccessDenied, BadURL, PlaceMissing
from holdfast.store import RetryPolicy, open_store
from holdfast.store.address import redact
from servers import AzureServer, S3Server

HASTY = RetryPolicy(budget_seconds=0)


def test_a_path_a_file_url_and_hadoops_form_are_the_same_place(tmp_path: Path) -> None:
    place = tmp_path / "with blank"
    open_store(str(place)).create("k", b"1")
    for url in (place.as_uri(), f"file://localhost{place.as_uri().removeprefix('file://')}", f"file:{place}"):
        assert open_store(url).get("k") == b"1"
        assert open_store(url).url == place.as_uri()


def test_a_relative_path_and_a_home_path_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("store").url == (tmp_path / "store").as_uri()
    assert open_store("~/store").url == (tmp_path / "store").as_uri()


def test_opening_makes_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "absent"))
    assert store.list("") == []
    assert [*tmp_path.iterdir()] == []


def test_memory_is_shared_by_name_and_private_without_one() -> None:
    name = f"memory://{uuid.uuid4().hex}"
    open_store(name).create("k", b"1")
    assert open_store(name).get("k") == b"1"
    open_store("memory://").create("k", b"1")
    assert open_store("memory://").list("") == []


@pytest.mark.parametrize("prefix", ["", "/", "a", "a/", "//a/b//", "a b/c.d-e_f=1%20é"])
def test_every_prefix_lists_what_it_holds(s3_server: S3Server, prefix: str) -> None:
    bucket = f"b-{uuid.uuid4().hex}"
    store = open_store(f"s3://{bucket}/{prefix}", s3_server.options)
    store.create("x/1", b"1")
    store.create("top", b"1")
    assert [info.key for info in store.list("")] == ["top", "x/1"]
    assert [info.key for info in store.list("x/")] == ["x/1"]
    assert store.folders("") == ["x"]
    whole = open_store(f"s3://{bucket}", s3_server.options)
    inside = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    assert [info.key for info in whole.list("")] == [f"{inside}top", f"{inside}x/1"]


def test_an_s3a_address_is_an_s3_address(s3_server: S3Server, s3_url: str) -> None:
    open_store(s3_url, s3_server.options).create("k", b"1")
    assert open_store(s3_url.replace("s3://", "s3a://"), s3_server.options).get("k") == b"1"


def test_options_come_from_the_address(s3_server: S3Server, s3_url: str) -> None:
    query = "&".join(f"{name}={value}" for name, value in s3_server.options.items())
    store = open_store(f"{s3_url}?{query}")
    assert store.create("k", b"1")


def test_options_come_from_the_environment(s3_server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_access_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    assert open_store(s3_url).create("k", b"1")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint)
    assert open_store(s3_url).get("k") == b"1"


def test_arguments_win_over_the_address_and_that_over_the_environment(
    s3_server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = {"secret_access_key": s3_server.secret_access_key}
    others = {name: value for name, value in s3_server.options.items() if name not in right}
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    address = f"{s3_url}?secret_access_key={right['secret_access_key']}"
    assert open_store(address, others).create("k", b"1")
    with pytest.raises(AccessDenied):
        open_store(address, {**others, "secret_access_key": "wrong"}).get("k")
    assert open_store(f"{s3_url}?secret_access_key=wrong", {**others, **right}).get("k") == b"1"


def test_given_keys_are_not_mixed_with_the_session_of_another_login(
    s3_server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "else")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "entirely")
    assert open_store(s3_url, s3_server.options).create("k", b"1")


def test_stores_with_different_credentials_live_side_by_side(s3_server: S3Server, s3_url: str) -> None:
    good = open_store(s3_url, s3_server.options)
    bad = open_store(s3_url, {**s3_server.options, "secret_access_key": "wrong"})
    assert good.create("k", b"1")
    with pytest.raises(AccessDenied):
        bad.get("k")
    assert good.get("k") == b"1"


def test_no_credentials_at_all_is_told_at_once(s3_server: S3Server, s3_url: str) -> None:
    with pytest.raises(AccessDenied, match="no credentials"):
        open_store(s3_url, {"endpoint": s3_server.endpoint, "metadata_endpoint": "http://127.0.0.1:1"}).get("k")


def test_an_azure_container_that_is_not_there_is_a_missing_place(azure_server: AzureServer) -> None:
    store = open_store("az://no-such-container/x", azure_server.options)
    for verb, argument in [("get", "k"), ("list", ""), ("folders", "")]:
        with pytest.raises(PlaceMissing):
            getattr(store, verb)(argument)
    with pytest.raises(PlaceMissing):
        store.create("k", b"1")


def test_wrong_azure_keys_are_denied(azure_server: AzureServer) -> None:
    store = open_store(azure_server.url(), {**azure_server.options, "account_key": "d3Jvbmc="})
    for verb, argument in [("get", "k"), ("list", "")]:
        with pytest.raises(AccessDenied):
            getattr(store, verb)(argument)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "empty"),
        ("s3://", "name of the bucket"),
        ("s3:///prefix", "name of the bucket"),
        ("gs://?endpoint=x", "name of the bucket"),
        ("az://", "name of the bucket or container"),
        ("hdfs://namenode/x", "HDFS"),
        ("dbfs:/x", "Databricks"),
        ("viewfs://cluster/x", "HDFS"),
        ("https://host/x", "endpoint"),
        ("ftp://host/x", "'ftp' is not known"),
        ("file://host/x", "without a host"),
        ("file:///x?region=y", "only a cloud store takes options"),
        ("s3://bucket/a/../b", "is no folder"),
        ("s3://bucket/a//b", "is no folder"),
        ("abfss://container/x", "the form is"),
        ("abfss://c@account.blob.core.windows.net/x", "the form is"),
        ("wasbs://c@account.dfs.core.windows.net/x", "the form is"),
        ("s3://bucket/x?no_such_option=1", "no_such_option"),
        ("s3://bucket/x?endpoint=127.0.0.1:9000", "must begin with http"),
        ("gs://bucket/x?endpoint=127.0.0.1:9000", "must begin with http"),
        ("s3://user:hunter2@bucket/x", "does not belong here"),
        ("memory://x?token=hunter2", "only a cloud store takes options"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_and_says_why(url: str, why: str) -> None:
    with pytest.raises(BadURL, match=why) as raised:
        open_store(url)
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in raised.value.url


def test_options_for_a_local_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadURL, match="only a cloud store takes options"):
        open_store(str(tmp_path), {"region": "x"})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://b/p?secret_access_key=hunter2&region=r", "s3://b/p?region=r"),
        ("s3://b/p?endpoint=http://u:hunter2@h:1", "s3://b/p?endpoint=http://h:1"),
        ("s3://u:hunter2@b/p", "s3://***@b/p"),
        ("https://u:hunter2@h/p?sig=hunter2", "https://***@h/p"),
        ("abfss://c@a.dfs.core.windows.net/p?sas_token=hunter2", "abfss://c@a.dfs.core.windows.net/p"),
        ("wasbs://c@a.blob.core.windows.net/p?sas_token=hunter2", "wasbs://c@a.blob.core.windows.net/p"),
        ("/plain/path", "/plain/path"),
    ],
)
def test_a_shown_address_has_no_secret(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_no_secret_is_in_the_address_of_a_store_or_in_its_errors(s3_server: S3Server) -> None:
    secrets = {"secret_access_key": "hunter2", "session_token": "hunter3"}
    query = "&".join(f"{name}={value}" for name, value in secrets.items())
    store = open_store(f"s3://bucket/x?{query}", {"endpoint": s3_server.endpoint, "access_key_id": "k"}, HASTY)
    with pytest.raises(AccessDenied) as raised:
        store.get("k")
    for text in (store.url, repr(store), str(raised.value), repr(raised.value), str(raised.value.__cause__)):
        assert "hunter" not in text
    with pytest.raises(AccessDenied) as denied:
        open_store("az://c/x", {"account_name": "a", "account_key": "hunter2 is not base64"}).get("k")
    assert "hunter2" not in str(denied.value)


@pytest.mark.parametrize("option", ["secret_access_key", "session_token"])
def test_a_key_with_a_line_break_is_refused(option: str) -> None:
    with pytest.raises(BadURL, match=f"{option} holds a line break") as refused:
        open_store("s3://bucket/x", {"access_key_id": "k", "secret_access_key": "s", option: "hunter2\n"})
    assert "hunter2" not in str(refused.value)


def test_the_account_stands_in_an_azure_address() -> None:
    options = {"account_key": "a2V5"}
    store = open_store("abfss://box@acc.dfs.core.windows.net/p", options)
    assert store.url == "abfss://box@acc.dfs.core.windows.net/p?account_name=acc"
    china = open_store("abfss://box@acc.dfs.core.chinacloudapi.cn/p", options)
    assert "endpoint=https://acc.blob.core.chinacloudapi.cn" in china.url
    older = open_store("wasbs://box@acc.blob.core.chinacloudapi.cn/p", options)
    assert "endpoint=https://acc.blob.core.chinacloudapi.cn" in older.url


def test_the_cloud_library_is_imported_only_for_a_cloud(tmp_path: Path) -> None:
    program = f"""
import sys, holdfast.store, holdfast.testing
holdfast.store.probe(holdfast.store.open_store({str(tmp_path)!r}))
assert "obstore" not in sys.modules and "pytest" not in sys.modules
holdfast.store.open_store("s3://bucket/x")
assert "obstore" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
