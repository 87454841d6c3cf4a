from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadName
from holdfast.layout import Named, PipelineKeys, Slot, check_name, parse

KEYS = PipelineKeys("orders")
TOKEN = "0123456789abcdef" * 2

numbers = st.integers(0, 10**10 - 1)
slots = st.builds(Slot, numbers, numbers)
tokens = st.text("0123456789abcdef", min_size=32, max_size=32)
names = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,30}", fullmatch=True)


def below(key: str) -> str:
    assert key.startswith(KEYS.prefix)
    return key.removeprefix(KEYS.prefix)


def named(
    what: str, slot: Slot | None = None, generation: int | None = None, token: str = "", name: str = "", k: int = 0
) -> Named:
    return Named(what, slot, slot.generation if slot else generation, token, name, k)


@given(slots, tokens, names, numbers)
def test_every_key_that_is_built_reads_back_as_what_it_was_made_of(slot: Slot, token: str, name: str, k: int) -> None:
    g = slot.generation
    assert parse(below(KEYS.identity)) == named("pipeline")
    assert parse(below(KEYS.latest)) == named("latest")
    assert parse(below(KEYS.claim(g))) == named("claim", generation=g)
    assert parse(below(KEYS.base(g))) == named("base", generation=g)
    assert parse(below(KEYS.manifest(slot))) == named("manifest", slot)
    assert parse(below(KEYS.upload(g, token)) + "pack-12") == named("data", None, g, token, "pack-12")
    assert parse(below(KEYS.upload(g, token)) + "pack-12.index") == named("data", None, g, token, "pack-12")
    assert parse(below(KEYS.savepoint(name, k))) == named("savepoint", name=name, k=k)
    assert parse(below(KEYS.pin(slot, token))) == named("pin", slot, token=token)
    assert parse(below(KEYS.decision(slot))) == named("decision", slot)
    assert parse(below(KEYS.intent(slot, token))) == named("intent", slot, token=token)
    assert parse(below(KEYS.joined(g, k, token))) == named("joined", generation=g, token=token, k=k)
    assert parse(below(KEYS.request(token))) == named("request", token=token)
    assert parse(below(KEYS.answer(token))) == named("answer", token=token)
    assert parse(below(KEYS.settled(slot))) == named("settled", slot)
    assert parse(below(KEYS.failed(slot, token))) == named("failed", slot, token=token)
    assert parse(below(f"{KEYS.aside}{slot}.json.{token}")) == named("aside", token=token, name=f"{slot}.json")


FOREIGN = [
    "",
    "notes.txt",
    "pipeline.json.bak",
    "x/pipeline.json",
    "latest ",
    "generations/1.json",
    "generations/00000000001.json",
    "generations/0000000001.json~",
    "generations/0000000001.base",
    "generations/٠٠٠٠٠٠٠٠٠١.json",
    "checkpoints/0000000001.json",
    "checkpoints/0000000001/1.json",
    "checkpoints/0000000001/0000000001.json#1",
    "checkpoints/0000000001/0000000001/0000000001.json",
    f"data/0000000001-{TOKEN.upper()}/pack-0",
    f"data/0000000001-{TOKEN}/pack",
    f"data/0000000001-{TOKEN}/pack-0.tmp",
    f"data/0000000001-{TOKEN}/deeper/pack-0",
    f"pins/0000000001.{TOKEN}.json",
    "forgotten/0000000001-0000000001.json",
    f"forgotten/0000000001-0000000001.{TOKEN}",
    f"requests/{TOKEN[:-1]}.json",
    "settled/0000000001/0000000001.failed.json",
    "aside/anything",
    "checkpoints/0000000001/0000000001.json\n",
]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_name_that_is_not_of_our_making_is_none(foreign: str) -> None:
    assert parse(foreign) is None


@given(st.text())
def test_reading_any_text_gives_a_name_or_none(text: str) -> None:
    assert parse(text) is None or parse(text) == parse(text)


@given(slots)
def test_numbers_in_keys_have_ten_digits(slot: Slot) -> None:
    assert below(KEYS.manifest(slot)) == f"checkpoints/{slot.generation:010d}/{slot.number:010d}.json"
    assert len(below(KEYS.claim(slot.generation))) == len("generations/0000000000.json")


@pytest.mark.parametrize("number", [-1, 10**10])
def test_a_number_without_ten_digits_is_refused(number: int) -> None:
    with pytest.raises(BadName):
        KEYS.claim(number)
    with pytest.raises(BadName):
        KEYS.manifest(Slot(0, number))


@given(slots, slots)
def test_keys_of_slots_sort_as_their_numbers_do(one: Slot, other: Slot) -> None:
    assert (one < other) == (KEYS.manifest(one) < KEYS.manifest(other)) == (KEYS.decision(one) < KEYS.decision(other))


@given(slots)
def test_a_listing_from_a_slot_on_begins_with_that_slot(slot: Slot) -> None:
    assert KEYS.slots_from(slot) < KEYS.manifest(slot)
    assert KEYS.generations_from(slot.generation) < KEYS.base(slot.generation) < KEYS.claim(slot.generation)
    if slot.number > 0:
        assert KEYS.manifest(Slot(slot.generation, slot.number - 1)) < KEYS.slots_from(slot)
    if slot.generation > 0:
        assert KEYS.claim(slot.generation - 1) < KEYS.generations_from(slot.generation)


@pytest.mark.parametrize("name", ["orders", "a", "_x", "-x", "A.b-c_9", "x" * 200])
def test_good_names_are_taken(name: str) -> None:
    assert check_name("pipeline", name) == name
    assert PipelineKeys(name).prefix == f"pipelines/{name}/"


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "/x", "a/b", "a b", "ä", "x" * 201, "a\n", "a@b", "a:b"])
def test_bad_names_are_refused_everywhere(name: str) -> None:
    with pytest.raises(BadName):
        check_name("pipeline", name)
    with pytest.raises(BadName):
        PipelineKeys(name)
    with pytest.raises(BadName):
        KEYS.savepoint(name, 0)
