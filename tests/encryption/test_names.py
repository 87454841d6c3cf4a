from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.encryption.names import HiddenNames
from holdfast.encryption.ring import Ring
from holdfast.errors import BadName
from holdfast.layout import NAME, NAME_CHARACTERS, PipelineKeys, Slot, parse

NAMES = HiddenNames(Ring.new())
words = st.from_regex(NAME, fullmatch=True)


def every_key(keys: PipelineKeys, savepoint: str) -> list[str]:
    slot, token = Slot(3, 14), "0f" * 16
    return [
        keys.identity,
        keys.latest,
        keys.claim(3),
        keys.base(3),
        keys.manifest(slot),
        f"{keys.upload(3, token)}pack-0",
        keys.savepoint(savepoint, 2),
        keys.pin(slot, token),
        keys.decision(slot),
        keys.joined(3, 99, token),
        keys.intent(slot, token),
        keys.request(token),
        keys.answer(token),
        keys.settled(slot),
        keys.failed(slot, token),
    ]


@given(words, words.filter(lambda name: name not in ("now", "latest")))
def test_every_key_is_hidden_and_shown_again(pipeline: str, savepoint: str) -> None:
    for key in every_key(PipelineKeys(pipeline), savepoint):
        hidden = NAMES.hide(key)
        assert NAMES.show(hidden) == key
        assert all(len(segment) <= 255 for segment in hidden.split("/")), "the name of a file has an end"
        relative = hidden.split("/", 2)[2]
        assert parse(relative) is not None, "all that is not a user's own stays as it is"


@given(words.filter(lambda name: len(name) > 3))
def test_nothing_of_a_name_is_seen(name: str) -> None:
    text = NAMES.hide(f"pipelines/{name}/savepoints/{name}/0000000000.json")
    first, second = text.split("/")[1], text.split("/")[3]
    assert name not in text
    assert first != second


def test_the_length_of_a_short_name_does_not_show() -> None:
    assert len({len(NAMES.hide(f"pipelines/{'n' * size}/latest")) for size in range(1, 22)}) == 1


def test_the_longest_name_fits_into_the_name_of_a_file() -> None:
    for character in NAME_CHARACTERS.replace(".", ""):
        assert len(NAMES.hide(f"pipelines/{character * 200}/latest").split("/")[1]) <= 255


def test_the_same_savepoint_of_two_pipelines_looks_different() -> None:
    one, other = (NAMES.hide(f"pipelines/{name}/savepoints/v1/0000000000.json").split("/")[3] for name in "ab")
    assert one != other


@given(st.text(alphabet="ABCabc012-_.=!", min_size=1, max_size=60))
def test_a_name_that_was_not_made_here_is_none(text: str) -> None:
    assert NAMES.show(f"pipelines/{text}/latest") is None


def test_a_name_of_another_repository_is_none() -> None:
    other = HiddenNames(Ring.new())
    assert other.show(NAMES.hide("pipelines/orders/latest")) is None


def test_only_one_text_stands_for_a_name() -> None:
    hidden = NAMES.hide("pipelines/orders/latest")
    text = hidden.split("/")[1]
    for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
        assert (NAMES.show(f"pipelines/{text[:-1]}{last}/latest") is None) == (last != text[-1])


def test_a_rotation_renames_nothing() -> None:
    ring = Ring.new()
    assert HiddenNames(ring.grown()).hide("pipelines/orders/latest") == HiddenNames(ring).hide(
        "pipelines/orders/latest"
    )


def test_what_is_no_name_is_refused() -> None:
    with pytest.raises(BadName):
        NAMES.hide("pipelines/no spaces/latest")
