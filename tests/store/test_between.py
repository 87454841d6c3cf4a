"""Places that lie in one another, and files copied from one to the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store import Address
from holdfast.store.between import copy_files, key_within, plain_url, tidy
from servers import S3Server


def test_a_place_is_found_below_a_root(tmp_path: Path) -> None:
    root = Address(str(tmp_path / "a"))
    assert key_within(root, Address(str(tmp_path / "a/b/c"))) == "b/c"
    assert key_within(root, Address((tmp_path / "a/b c").as_uri())) == "b c"
    assert key_within(root, root) == ""
    assert key_within(root, Address(str(tmp_path / "ab"))) is None
    assert key_within(root, Address("s3://bucket/a/b")) is None


def test_a_link_leads_to_the_same_place(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert key_within(Address(str(tmp_path / "link")), Address(str(tmp_path / "a/b"))) == "b"


@pytest.mark.parametrize(
    ("root", "place", "key"),
    [
        ("s3://bucket/t", "s3a://bucket/t/hf", "hf"),
        ("s3://bucket", "s3://bucket/t/hf", "t/hf"),
        ("s3://bucket/t", "s3://bucket/table", None),
        ("s3://bucket/t", "s3://other/t/hf", None),
        ("s3://bucket/t?endpoint=http://a", "s3://bucket/t/hf?endpoint=http://b", None),
        ("az://c/t?account_name=a", "abfss://c@a.dfs.core.windows.net/t/hf", "hf"),
    ],
)
def test_a_place_in_a_cloud_is_told_by_its_server_and_bucket(root: str, place: str, key: str | None) -> None:
    assert key_within(Address(root), Address(place)) == key


def test_an_address_is_tidied_so_that_it_can_be_shown() -> None:
    address = tidy("s3a://bucket/t/?secret_access_key=hidden", {"region": "r"})
    assert address.url == "s3://bucket/t"
    assert address.options == {"secret_access_key": "hidden", "region": "r"}
    assert plain_url(address, "a/b") == "s3://bucket/t/a/b"


def test_files_are_copied_from_place_to_place(tmp_path: Path, s3_server: S3Server, s3_url: str) -> None:
    disk, cloud = Address(str(tmp_path)), Address(s3_url, s3_server.options)
    copied = Address(f"{s3_url}-2", s3_server.options)
    disk.store().create("one", b"1" * 100)
    disk.store().create("a/two", b"2")
    copy_files(disk, cloud, {"one": "x/one", "a/two": "x/two"})
    copy_files(cloud, copied, {"x/one": "one", "x/two": "y/two"})
    assert copied.store().get("one") == b"1" * 100
    assert copied.store().get("y/two") == b"2"
