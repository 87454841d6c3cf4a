"""The proof: nothing readable in the raw objects, and whatever is changed, swapped or put back is found."""

from __future__ import annotations

import base64
import hashlib
import itertools

import pytest

import holdfast
from builders import dump, flipped, look
from cli.sample_repository import Sink, make_orders, take_checkpoints
from holdfast import Key, Repository
from holdfast.encryption.store import EncryptedStore
from holdfast.epochs import EpochDecision, Link, Staged
from holdfast.errors import Damage, DamagedRecord
from holdfast.layout import KINDS, REPOSITORY, RINGS, Slot, parse
from holdfast.manifest import SinkStatus
from holdfast.pipeline.ledger import Ledger
from holdfast.records import Answer, Intent, Joined, Outcome, Request, Settled
from holdfast.store import Store, open_store

KEY = Key.generate()
NAME = "payroll-of-the-king"
SAVEPOINT = "before-the-coronation"
ROWS = b"gold: 1,000,000 pieces owed to the dragon; " * 50


@pytest.fixture(scope="module")
def whole() -> dict[str, bytes]:
    """The raw objects of an encrypted repository with every kind of object, small enough to try every byte of it."""
    store = open_store("memory://")
    repository = holdfast.open(store, create=True, key=KEY)
    pipeline = repository.pipeline(NAME)
    take(pipeline, 3)
    pipeline["epoch:1"].savepoint(SAVEPOINT)
    pipeline["epoch:2"].pin("because the treasurer asked")
    take(pipeline, 2, first=3)
    pipeline.forget(pipeline["epoch:0"].slot)
    leave_the_rest(pipeline)
    return dump(store)


def leave_the_rest(pipeline: holdfast.StoredPipeline) -> None:
    """What a quiet life leaves none of: decisions on epochs, a request, a failed sink, and what a crash leaves."""
    records, keys, token, gone = pipeline.records, pipeline.records.keys, "0" * 32, Slot(0, 0)
    records.create(keys.request(token), Request(token=token, savepoint=SAVEPOINT, who="tax-collector", created_ms=1))
    records.create(keys.answer(token), Answer(token=token, refused="the tax-collector is away"))
    outcomes = {"vault-of-gold": Outcome(status="failed", why="the dragon sleeps on it")}
    failed = Settled(token=token, generation=1, slot=0, outcomes=outcomes)
    records.create(keys.failed(Slot(1, 0), token), failed)
    records.create(keys.intent(gone, token), Intent(token=token, generation=0, slot=0))
    records.create(keys.joined(0, 1, token), Joined(token=token, generation=0, ranges=[(0, 0)]))
    # As `check --repair` sets a manifest aside.
    records.store.copy(keys.manifest(pipeline["epoch:3"].slot), f"{keys.aside}0-0.json.{token}")
    ledger = Ledger(records.store, keys.ledger)
    decisions = [_decision(epoch) for epoch in range(3)]
    ledger.add(decisions[0])
    ledger.join(0, decisions[1:])


def _decision(epoch: int) -> EpochDecision:
    return EpochDecision(
        token="0" * 32,
        generation=0,
        attempt=0,
        before=Link(epoch - 1, "a"),
        after=Link(epoch, "b"),
        offsets=b"v1\n" + b"topic-of-taxes",
        sources={},
        staged=Staged("memory://treasurer", [], ""),
        tokens={"vault-of-gold": epoch},
    )


def take(pipeline: holdfast.StoredPipeline, count: int, first: int = 0) -> None:
    with pipeline.recover(limits=holdfast.Limits(inline=300), sinks={"vault-of-gold": Sink()}) as run:
        for epoch in range(first, first + count):
            draft = run.begin(epoch, carry=True)
            draft.save_file("rows.txt", ROWS + bytes([epoch]))
            draft.save_file("small.txt", b"a small secret")
            offsets = holdfast.ConnectorOffset(offsets={"topic-of-taxes-0": str(987_654_321 + epoch)})
            sinks = {"vault-of-gold": SinkStatus(status="pending", token={"up_to": epoch})}
            run.save_manifest(draft, holdfast.Description(source_offsets={"kafka": offsets}, sinks=sinks))


def laid_out(objects: dict[str, bytes]) -> Store:
    store = open_store("memory://")
    for key, data in objects.items():
        store.create(key, data)
    return store


def encrypted(objects: dict[str, bytes]) -> EncryptedStore:
    opened = holdfast.open(laid_out(objects), key=KEY).store
    assert isinstance(opened, EncryptedStore)
    return opened


def shown(whole: dict[str, bytes]) -> dict[str, str]:
    """The raw key of each encrypted object, by its name."""
    store = encrypted(whole)
    return {info.key: store._names.hide(info.key) for info in store.list("pipelines/")}


def kind_of(name: str) -> str | None:
    named = parse(name.removeprefix(f"pipelines/{NAME}/"))
    return None if named is None else named.what


# ---- nothing can be read ----


def test_no_name_offset_or_row_stands_in_a_raw_object_or_its_key(whole: dict[str, bytes]) -> None:
    words = [
        NAME,
        SAVEPOINT,
        "rows.txt",
        "topic-of-taxes",
        "987654",
        "treasurer",
        "request for",
        "small secret",
        "dragon",
        "tax-collector",
        "vault-of-gold",
    ]
    known = [word.encode() for word in words] + [KEY.text().encode(), KEY._secret]
    # As base64 any of the three ways that it can lie, too.
    known += [base64.b64encode(b"x" * n + b"a small secret")[8:-8] for n in range(3)]
    known += [hashlib.sha256(ROWS + bytes([n])).hexdigest().encode() for n in range(5)]
    everything = b"\n".join(key.encode() + b"\n" + data for key, data in whole.items())
    assert [word for word in known if word in everything] == []


def test_without_encryption_that_search_finds_them_all() -> None:
    """The search itself is proven: in a plain repository it finds every word."""
    store = open_store("memory://")
    pipeline = holdfast.open(store, create=True).pipeline(NAME)
    take(pipeline, 3)
    pipeline["epoch:1"].savepoint(SAVEPOINT)
    everything = b"\n".join(key.encode() + b"\n" + data for key, data in dump(store).items())
    for word in (NAME, SAVEPOINT, "rows.txt", "topic-of-taxes", "987654", "dragon", "vault-of-gold"):
        assert word.encode() in everything
    assert base64.b64encode(b"a small secret")[:-4] in everything


def test_raw_objects_do_not_compress_and_no_two_begin_alike(whole: dict[str, bytes]) -> None:
    import zlib

    bodies = [data[8:] for key, data in whole.items() if key.startswith("pipelines/")]
    assert len({body[:24] for body in bodies}) == len(bodies)
    for body in bodies:
        assert len(zlib.compress(body, 9)) >= len(body)


# ---- every byte ----


def test_every_byte_of_every_object_that_is_flipped_is_found(whole: dict[str, bytes]) -> None:
    names = shown(whole)
    assert {kind_of(name) for name in names} == {kind.what for kind in KINDS}
    raw = laid_out(whole)
    store = EncryptedStore(raw, encrypted(whole)._ring)
    tried = 0
    for name, key in names.items():
        for at in range(len(whole[key])):
            raw.put(key, flipped(whole[key], at, at % 8))
            with pytest.raises(DamagedRecord):
                store.get(name)
            tried += 1
        raw.put(key, whole[key])
    assert tried == sum(len(whole[key]) for key in names.values()) > 10_000


def test_every_byte_of_the_root_and_its_keys_that_is_flipped_is_found(whole: dict[str, bytes]) -> None:
    raw = laid_out(whole)
    for key in (key for key in whole if key == REPOSITORY or key.startswith(RINGS)):
        for at in range(len(whole[key])):
            raw.put(key, flipped(whole[key], at, at % 8))
            with pytest.raises(Damage):
                holdfast.open(raw, key=KEY)
        raw.put(key, whole[key])


def test_check_finds_a_flip_in_any_object(whole: dict[str, bytes]) -> None:
    usual = holdfast.open(laid_out(whole), key=KEY).pipeline(NAME).check(read_percent=100)
    assert usual.damaged == []
    for name, key in shown(whole).items():
        if kind_of(name) == "aside":
            continue  # that was damaged before, and is kept for people
        raw = laid_out({**whole, key: flipped(whole[key], len(whole[key]) // 2)})
        report = holdfast.open(raw, key=KEY).pipeline(NAME).check(read_percent=100)
        assert {*report.faults} - {*usual.faults}, name
        assert report.damaged or name.endswith(("/latest",)), name


# ---- swapped ----


def test_any_two_objects_that_change_places_are_found(whole: dict[str, bytes]) -> None:
    names = shown(whole)
    for one, other in itertools.combinations(names, 2):
        store = encrypted({**whole, names[one]: whole[names[other]], names[other]: whole[names[one]]})
        for name in (one, other):
            with pytest.raises(DamagedRecord):
                store.get(name)


def test_the_root_its_keys_and_any_other_object_that_change_places_are_found(whole: dict[str, bytes]) -> None:
    above = [key for key in whole if key == REPOSITORY or key.startswith(RINGS)]
    assert len(above) == 2
    for one, other in ((one, other) for one in above for other in whole if other != one):
        swapped = laid_out({**whole, one: whole[other], other: whole[one]})
        with pytest.raises(Damage):
            holdfast.open(swapped, key=KEY)


def test_the_bytes_of_an_older_checkpoint_in_the_place_of_a_newer_ones_are_found(whole: dict[str, bytes]) -> None:
    names = shown(whole)
    packs = sorted(name for name in names if "/data/" in name)
    store = encrypted({**whole, names[packs[-1]]: whole[names[packs[0]]]})
    report = holdfast.open(store.inner, key=KEY).pipeline(NAME).check(read_percent=100)
    assert {fault.kind for fault in report.damaged} & {"flipped", "truncated"}


def test_an_object_of_another_repository_with_the_same_key_and_names_is_found(whole: dict[str, bytes]) -> None:
    other = open_store("memory://")
    take(holdfast.open(other, create=True, key=KEY).pipeline(NAME), 3)
    opened = holdfast.open(other, key=KEY).store
    assert isinstance(opened, EncryptedStore)
    for name in ("pipeline.json", "generations/0000000000.json", "checkpoints/0000000000/0000000001.json"):
        key = f"pipelines/{NAME}/{name}"
        there = shown(whole)[key]
        store = encrypted({**whole, there: other.get(opened._names.hide(key))})
        with pytest.raises(DamagedRecord):
            store.get(key)


def test_a_folder_that_was_renamed_is_no_pipeline_and_no_savepoint(whole: dict[str, bytes]) -> None:
    names = shown(whole)
    pipeline = names[f"pipelines/{NAME}/latest"].split("/")[1]
    other = encrypted(whole)._names.hide(f"pipelines/another/savepoints/{SAVEPOINT}/0000000000.json").split("/")
    renamed = {key.replace(pipeline, other[1]): data for key, data in whole.items()}
    repository = holdfast.open(laid_out(renamed), key=KEY)
    with pytest.raises(DamagedRecord):
        repository.pipeline("another").records.identity()
    savepoint = names[f"pipelines/{NAME}/savepoints/{SAVEPOINT}/0000000000.json"].split("/")[3]
    moved = {key.replace(savepoint, other[3]): data for key, data in whole.items()}
    assert holdfast.open(laid_out(moved), key=KEY).pipeline(NAME).savepoints() == {}


# ---- put back ----


def test_no_object_that_counts_is_ever_there_in_two_versions(whole: dict[str, bytes]) -> None:
    """An older version that is put back is then the same, or a hint, or what was deleted."""
    store = laid_out(whole)
    pipeline = holdfast.open(store, key=KEY).pipeline(NAME)
    take(pipeline, 2, first=5)
    pipeline["epoch:4"].savepoint("another")
    pipeline.forget(pipeline["epoch:3"].slot)
    after = dump(store)
    changed = {key for key in whole.keys() & after.keys() if whole[key] != after[key]}
    assert changed == {shown(whole)[f"pipelines/{NAME}/latest"]}


def test_an_older_hint_that_is_put_back_changes_nothing(whole: dict[str, bytes]) -> None:
    store = laid_out(whole)
    take(holdfast.open(store, key=KEY).pipeline(NAME), 2, first=5)
    hint = shown(whole)[f"pipelines/{NAME}/latest"]
    store.put(hint, whole[hint])
    newest = holdfast.open(store, key=KEY).pipeline(NAME).latest()
    assert newest is not None
    assert newest.epoch == 6


def test_what_was_deleted_and_is_put_back_does_not_count_again(whole: dict[str, bytes]) -> None:
    store = laid_out(whole)
    pipeline = holdfast.open(store, key=KEY).pipeline(NAME)
    doomed = pipeline["epoch:3"].slot
    take(pipeline, 2, first=5)
    before = dump(store)
    pipeline.forget(doomed)
    for key in before.keys() - dump(store).keys():
        store.create(key, before[key])
    again = holdfast.open(store, key=KEY).pipeline(NAME)
    assert doomed not in [checkpoint.slot for checkpoint in again.checkpoints(with_abandoned=True)]


def test_keys_from_before_a_rotation_that_are_put_back_do_not_open_with_the_new_one() -> None:
    store = open_store("memory://")
    repository = holdfast.open(store, create=True, key=KEY)
    older = {key: data for key, data in dump(store).items() if key.startswith(RINGS)}
    new = Key.generate()
    assert repository.keys is not None
    repository.keys.rotate(new)
    store.delete([key for key in dump(store) if key.startswith(RINGS)])
    for key, data in older.items():
        store.create(key, data)
    with pytest.raises(holdfast.HoldfastError, match="does not open"):
        holdfast.open(store, key=new)


# ---- all of it together ----


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_a_whole_life_in_a_real_store(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Store = request.getfixturevalue(f"{kind}_store")
    monkeypatch.setenv("HOLDFAST_KEY", KEY.text())
    repository = make_orders(store)  # type: ignore[arg-type]
    orders = repository.pipeline("orders")
    assert orders.check(read_percent=100).damaged == []
    orders.prune(holdfast.KeepPolicy(last=2), dry_run=False)
    orders.sweep()
    again: Repository = holdfast.open(store)
    take_checkpoints(again.pipeline("orders"), 6, 7)
    assert again.pipeline("orders").check(read_percent=100).damaged == []
    assert look(again)["before-upgrade"].epoch == 1
    for info in store.list("pipelines/"):
        assert b"orders" not in info.key.encode() + store.get(info.key)
