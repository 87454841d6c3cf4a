"""The order of columns in a set of Scala; what is expected here was asked of Scala 2.12 and 2.13 themselves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decide.column_order import in_scala_set

SOME = ["quantity", "channel", "status", "source", "target"]
ODD = ["order_id", "customer", "größe", "😀", "country", "city", "street", "channel"]
ALIKE = ["Aa", "BB", "c", "d", "e", "f"]
"""The first two have the same hash in Java."""


def test_names_that_share_the_first_bits_come_in_their_place_in_scala_2_12() -> None:
    assert in_scala_set(SOME, nested_last=False) == ("quantity", "channel", "source", "status", "target")
    assert in_scala_set(ALIKE, nested_last=False) == ("e", "f", "Aa", "BB", "c", "d")
    found = in_scala_set(ODD, nested_last=False)
    assert found == ("city", "order_id", "channel", "😀", "größe", "country", "customer", "street")


def test_names_that_share_the_first_bits_come_last_in_scala_2_13() -> None:
    assert in_scala_set(SOME, nested_last=True) == ("source", "status", "target", "quantity", "channel")
    assert in_scala_set(ALIKE, nested_last=True) == ("e", "f", "c", "d", "Aa", "BB")
    found = in_scala_set(ODD, nested_last=True)
    assert found == ("city", "😀", "customer", "street", "order_id", "channel", "größe", "country")


@given(st.lists(st.text(), unique=True, max_size=4), st.booleans())
def test_up_to_four_names_stay_as_they_are(names: list[str], nested_last: bool) -> None:
    assert in_scala_set(names, nested_last=nested_last) == tuple(names)


@given(st.lists(st.text(), unique=True, min_size=5, max_size=40), st.booleans())
def test_no_name_is_lost_and_the_order_depends_on_the_names_alone(names: list[str], nested_last: bool) -> None:
    found = in_scala_set(names, nested_last=nested_last)
    assert sorted(found) == sorted(names)
    assert in_scala_set(found, nested_last=nested_last) == found
