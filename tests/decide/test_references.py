from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decide.references import Reference, parse_reference
from holdfast.errors import BadInput, BadName, BadReference
from holdfast.layout import Slot

NAMES = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True)


@given(NAMES)
def test_a_pipeline_alone_means_its_latest(name: str) -> None:
    assert parse_reference(name) == parse_reference(f"{name}@latest") == Reference(name)


@given(NAMES, NAMES)
def test_a_word_is_a_savepoint_or_the_beginning_of_an_id(pipeline: str, word: str) -> None:
    parsed = parse_reference(f"{pipeline}@{word}")
    if word not in ("now", "latest"):
        assert (parsed.kind, parsed.pipeline, parsed.word) == ("word", pipeline, word)
        assert str(parsed) == f"{pipeline}@{word}"


def test_now_asks_the_running_one() -> None:
    assert parse_reference("orders@now").kind == "now"


def test_an_epoch_and_a_slot_are_numbers() -> None:
    assert parse_reference("orders@epoch:42").epoch == 42
    assert parse_reference("orders@slot:3-17").slot == Slot(3, 17)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-15T10:00", datetime(2026, 11, 15, 10, tzinfo=UTC)),
        ("2026-11-15", datetime(2026, 11, 15, tzinfo=UTC)),
        ("2026-11-15T10:00:30Z", datetime(2026, 11, 15, 10, 0, 30, tzinfo=UTC)),
        ("2026-11-15T10:00+02:00", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("2026-11-15 10:00:00.250", datetime(2026, 11, 15, 10, 0, 0, 250_000, tzinfo=UTC)),
    ],
)
def test_a_time_without_a_zone_is_utc_on_every_machine(text: str, moment: datetime) -> None:
    assert parse_reference(f"orders@time:{text}").time_ms == int(moment.timestamp() * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "o@epoch:",
        "o@epoch:-1",
        "o@epoch:x",
        "o@slot:3",
        "o@slot:3-",
        "o@slot:a-b",
        "o@time:noon",
        "o@time:",
        "o@when:1",
    ],
)
def test_what_can_not_be_understood_is_refused_and_shown(text: str) -> None:
    with pytest.raises(BadReference) as refused:
        parse_reference(text)
    assert refused.value.reference == text


@pytest.mark.parametrize("text", ["", "@x", "a b", "a/b@x", "o@", "o@a/b", "o@a@b", "../o"])
def test_names_that_could_not_stand_in_a_key_are_refused(text: str) -> None:
    with pytest.raises(BadName):
        parse_reference(text)


@given(st.text())
def test_any_text_is_a_reference_or_bad_input(text: str) -> None:
    with suppress(BadInput):
        assert parse_reference(text).pipeline == text.partition("@")[0]
