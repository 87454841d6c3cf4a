"""Places in Spark's logs of files are read, compared and rewritten as Spark itself writes them."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadValue
from holdfast.spark.locations import Location, PathMap, below, read_entry, read_plain, written

ODD = "in put é %20 a+b#c;d"
ODD_ENTRY = "file:///tmp/in%20put%20é%20%2520%20a+b%23c;d/f%200é.json"
"""An entry as Spark 4.3 wrote it for a file in a folder of this name."""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/data/in", Location("file", "", ("data", "in"))),
        ("file:/data/in/", Location("file", "", ("data", "in"))),
        ("file:///data//in", Location("file", "", ("data", "in"))),
        ("s3a://bucket/a b", Location("s3a", "bucket", ("a b",))),
        ("s3://bucket", Location("s3", "bucket", ())),
        ("abfss://c@a.dfs.core.windows.net/x", Location("abfss", "c@a.dfs.core.windows.net", ("x",))),
        ("/a%20b", Location("file", "", ("a%20b",))),
    ],
)
def test_a_place_is_read_as_people_write_it(text: str, place: Location) -> None:
    assert read_plain(text) == place


@pytest.mark.parametrize("text", ["data/in", "./in", "", "~/in"])
def test_a_relative_place_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="from the root"):
        read_plain(text)


def test_an_entry_is_read_as_the_place_that_it_means() -> None:
    assert read_entry(ODD_ENTRY) == read_plain(f"/tmp/{ODD}/f 0é.json")
    assert written(read_entry(ODD_ENTRY)) == f"/tmp/{ODD}/f 0é.json"
    assert written(read_entry("s3a://b/x%20y")) == "s3a://b/x y"


def move(entry: str, mapping: dict[str, str]) -> str | None:
    return PathMap.of(mapping).moved(entry)


def test_odd_names_are_matched_plain_and_written_encoded() -> None:
    assert move(ODD_ENTRY, {f"/tmp/{ODD}": f"/new/{ODD}"}) == ODD_ENTRY.replace("/tmp/", "/new/")
    assert move(ODD_ENTRY, {f"/tmp/{ODD}": '/100% [new] "x" ü\u00a0'}) == (
        "file:///100%25%20%5Bnew%5D%20%22x%22%20ü%C2%A0/f%200é.json"
    )
    assert move(ODD_ENTRY, {"/tmp/in%20put": "/new"}) is None


def test_what_is_below_keeps_its_own_letters() -> None:
    assert move("file:///a/%7Ex%2Fy", {"/a": "/b"}) == "file:///b/%7Ex%2Fy"


def test_only_whole_names_match() -> None:
    assert move("file:///data/input/f", {"/data/in": "/x"}) is None
    assert move("file:///data/in", {"/data/in": "/x"}) == "file:///x"
    assert move("file:///data/in/f", {"/data/in/": "/x/"}) == "file:///x/f"
    assert move("file:///data/f", {"/": "/x"}) == "file:///x/data/f"


def test_of_several_the_longest_counts_whatever_their_order() -> None:
    rules = {"/data": "/one", "/data/in/deep": "/three", "/data/in": "/two"}
    for order in (list(rules.items()), list(reversed(rules.items()))):
        mapping = dict(order)
        assert move("file:///data/f", mapping) == "file:///one/f"
        assert move("file:///data/in/f", mapping) == "file:///two/f"
        assert move("file:///data/in/deep/f", mapping) == "file:///three/f"


def test_a_new_place_is_not_mapped_again() -> None:
    assert move("file:///a/f", {"/a": "/b", "/b": "/a"}) == "file:///b/f"


@pytest.mark.parametrize(
    ("entry", "old", "new", "after"),
    [
        ("file:/a/f", "/a", "/b", "file:/b/f"),
        ("file:///a/f", "file:/a", "file:///b", "file:///b/f"),
        ("s3a://one/a/f", "s3a://one/a", "s3a://two/b", "s3a://two/b/f"),
        ("s3a://one/a/f", "s3://one", "s3://two", "s3a://two/a/f"),
        ("s3a://one/a/f", "s3a://one", "s3://two", "s3://two/a/f"),
        ("s3a://one/a/f", "s3a://one/a", "/b", "file:///b/f"),
        ("file:///a/f", "/a", "s3a://two/b c", "s3a://two/b%20c/f"),
        ("abfss://c@x.dfs.core.windows.net/a/f", "abfss://c@x.dfs.core.windows.net", "gs://b", "gs://b/a/f"),
    ],
)
def test_schemes_stay_as_the_log_has_them_unless_the_rule_changes_them(
    entry: str, old: str, new: str, after: str
) -> None:
    assert move(entry, {old: new}) == after


def test_another_bucket_or_scheme_does_not_match() -> None:
    assert move("s3a://one/a", {"s3a://two": "s3a://x"}) is None
    assert move("gs://one/a", {"s3a://one": "s3a://x"}) is None
    assert move("s3a://one/a", {"/": "/x"}) is None
    assert move("no address", {"/": "/x"}) is None


def test_a_place_lies_below_a_root_whatever_its_scheme_is_called() -> None:
    assert below(read_plain("s3a://b/x/y"), read_plain("s3://b/x"))
    assert not below(read_plain("s3a://b/xy"), read_plain("s3://b/x"))


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0\r\n"), min_size=1, max_size=8)


@given(names, names)
def test_any_name_is_found_again_after_it_was_mapped(old: str, new: str) -> None:
    start = PathMap.of({"/x": f"/{old}"}).moved("file:///x/f")
    assert start is not None
    after = move(start, {f"/{old}": f"/{new}"})
    assert after is not None
    assert unquote(after) == f"file:///{new}/f"
    assert read_entry(after).segments == (new, "f")
