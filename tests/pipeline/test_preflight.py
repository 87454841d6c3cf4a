"""A start or a rewind asks the sources first: what they are asked for, and what becomes of the answers."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

import holdfast
from holdfast import ConnectorOffset, Description, StoredPipeline
from holdfast.decide.replayable import SourceFinding, Until
from holdfast.decide.start import Known
from holdfast.epochs import EpochDecision, Link, Staged
from holdfast.errors import SourcesGone
from holdfast.pipeline.preflight import Identities, Preflight
from holdfast.pipeline.sources.contract import LogEntry, Past, Source
from holdfast.pipeline.sources.files import read_log
from holdfast.pipeline.sources.past import Stand, stand_of_manifest, stand_of_offsets
from holdfast.pipeline.takeover import Found

SETTINGS = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {"spark.sql.shuffle.partitions": "1"}}


class Asked(Source):
    """A source that remembers what it was asked, and misses what it is told to."""

    def __init__(self, name: str, *missing: str) -> None:
        super().__init__(name)
        self.missing = missing
        self.pasts: list[Past] = []

    def judge(self, past: Past) -> list[SourceFinding]:
        self.pasts.append(past)
        gone = [SourceFinding(self.name, what, "refuse", f"{what} happened") for what in self.missing]
        return [*gone, SourceFinding(self.name, "new", "note", "there is more")]

    def until(self, past: Past) -> Until:
        return Until()

    def identity(self, offsets: Mapping[str, str], known: Mapping[str, str]) -> Mapping[str, str]:
        return {**known, **{f"id:{name}": "1" for name in offsets if f"id:{name}" not in known}}


def offsets(epoch: int) -> bytes:
    """What Spark logs of an epoch of a topic and a folder of files."""
    lines = [json.dumps({"orders": {"0": epoch * 10}}), json.dumps({"logOffset": epoch})]
    return "\n".join(["v1", json.dumps(SETTINGS), *lines]).encode()


def log(number: int) -> bytes:
    entry = {"path": f"file:///in/{number}.json", "timestamp": 1, "batchId": number}
    return f"v1\n{json.dumps(entry)}".encode()


def decision(epoch: int) -> EpochDecision:
    return EpochDecision(
        token=f"t{epoch}",
        generation=0,
        attempt=0,
        before=Link(epoch - 1, "x"),
        after=Link(epoch, "y"),
        offsets=offsets(epoch),
        sources={f"sources/1/{epoch}": log(epoch)},
        staged=Staged("nowhere", [], ""),
        tokens={},
    )


@pytest.fixture
def stored() -> StoredPipeline:
    """A pipeline with checkpoints at epochs 1 and 3, whose sources are a topic and a folder."""
    pipeline = holdfast.open("memory://", create=True).pipeline("p")
    with pipeline.recover() as checkpointer:
        for epoch in (1, 3):
            draft = checkpointer.begin(epoch)
            for number in range(epoch + 1):
                draft.save_file(f"sources/1/{number}", log(number))
            topic = ConnectorOffset(offsets={"orders:0": str(epoch * 10)}, metadata={"topic-id:orders": "A"})
            folder = ConnectorOffset(offsets={"logOffset": str(epoch)})
            checkpointer.save_manifest(draft, Description(source_offsets={"0": topic, "1": folder}))
    return pipeline


def found(stored: StoredPipeline, epoch: int, *decided: int) -> Found:
    manifest = stored[f"epoch:{epoch}"].manifest
    return Found(Known("checkpoint", Link(epoch, "x")), manifest, [decision(each) for each in decided])


def test_a_start_asks_for_what_was_decided_after_its_state(stored: StoredPipeline) -> None:
    topic, folder = Asked("orders"), Asked("files")
    at = found(stored, 3, 2, 3, 4, 5)
    Preflight(stored.records, [topic, folder]).findings(
        stored.world(), at, Stand(3, {"0": {"orders:0": "30"}, "1": {}})
    )
    assert topic.pasts == [Past({"orders:0": "30"}, {"orders:0": "50"})]
    begin = stand_of_offsets(3, offsets(3))
    Preflight(stored.records, [topic, folder]).findings(stored.world(), at, begin)
    assert [entry.number for entry in folder.pasts[-1].files] == [4, 5]


def test_a_rewind_asks_for_all_that_was_ever_read_after_it(stored: StoredPipeline) -> None:
    topic, folder = Asked("orders"), Asked("files")
    at = found(stored, 1, 4)
    begin = stand_of_manifest(stored["epoch:1"].manifest)
    Preflight(stored.records, [topic, folder], past=stored.records).findings(stored.world(), at, begin)
    [past] = topic.pasts
    assert (past.begin, past.furthest) == ({"orders:0": "10"}, {"orders:0": "40"})
    assert past.identity == {"topic-id:orders": "A"}
    assert sorted(entry.number for entry in folder.pasts[0].files) == [2, 3, 4]


def test_what_is_gone_is_refused_unless_every_bit_of_it_is_accepted(stored: StoredPipeline) -> None:
    sources = [Asked("orders", "trimmed", "topic-remade"), Asked("files")]

    def asked(*accept: str) -> Found:
        preflight = Preflight(stored.records, sources, accept)
        find = preflight.asking(lambda _: found(stored, 3), lambda at: stand_of_offsets(at.state.at.epoch, offsets(3)))
        return find(stored.world())

    with pytest.raises(SourcesGone, match="trimmed happened, source orders: topic-remade happened") as told:
        asked()
    assert told.value.slugs == ["source:orders:topic-remade", "source:orders:trimmed"]
    with pytest.raises(SourcesGone, match="topic-remade"):
        asked("source:orders:trimmed")
    assert asked("source:orders:trimmed", "source:orders:topic-remade").state.at.epoch == 3


def test_a_pipeline_that_never_read_anything_asks_nobody(stored: StoredPipeline) -> None:
    source = Asked("orders", "trimmed")
    nothing = Found(Known("nothing"), None, [])
    assert Preflight(stored.records, [source]).asking(lambda _: nothing, lambda _: None)(stored.world()) == nothing
    assert source.pasts == []


def test_the_same_question_is_asked_once_and_another_anew(stored: StoredPipeline) -> None:
    source = Asked("orders")
    preflight = Preflight(stored.records, [source])
    begin = stand_of_offsets(3, offsets(3))
    for _ in range(3):
        preflight.findings(stored.world(), found(stored, 3, 4), begin)
    assert len(source.pasts) == 1
    preflight.findings(stored.world(), found(stored, 3, 4, 5), begin)
    assert len(source.pasts) == 2


def test_a_source_that_the_records_do_not_know_is_not_asked(stored: StoredPipeline) -> None:
    new = Asked("new")
    Preflight(stored.records, [Asked("a"), Asked("b"), new]).findings(
        stored.world(), found(stored, 3), stand_of_offsets(3, offsets(3))
    )
    assert new.pasts == []


def test_checkpoints_say_what_their_sources_were_and_keep_saying_it() -> None:
    identities = Identities([Asked("orders")])
    kind = {"kind": "kafka"}
    about = Description(source_offsets={"0": ConnectorOffset(offsets={"orders:0": "1"}, metadata=kind)})
    said = identities.add(about).source_offsets["0"].metadata
    assert said == {"kind": "kafka", "id:orders:0": "1"}
    assert identities.add(about).source_offsets["0"].metadata == said
    assert "id:orders:0" not in about.source_offsets["0"].metadata


def test_a_joined_log_names_every_file_with_its_number() -> None:
    lines = ['{"path":"file:///a%20b","timestamp":1,"batchId":3}', '{"path":"s3a://b/c","timestamp":1,"batchId":4}']
    assert [*read_log("\n".join(["v1", *lines, ""]).encode())] == [
        LogEntry(3, "file:///a%20b"),
        LogEntry(4, "s3a://b/c"),
    ]
