"""Taking a pipeline back with real tables: what is refused, and that nothing was touched by then."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast import Description, SinkStatus
from holdfast.claim import Reason
from holdfast.decide.start import Known
from holdfast.decide.timeline import World
from holdfast.epochs import Target
from holdfast.errors import SinksAhead
from holdfast.layout import Slot
from holdfast.pipeline.links import LINK, encode_link, link_of_manifest
from holdfast.pipeline.takeover import Found, Taken, take_pipeline
from holdfast.publish import Publisher
from holdfast.sinks import Parquet, SQLite
from holdfast.sinks.contract import Sink
from holdfast.testing.sinks import stage, step, words


class Pipeline:
    """A pipeline with one sink that goes from checkpoint to checkpoint without Spark."""

    def __init__(self, folder: Path, sink: Sink) -> None:
        self.folder = folder
        self.sink = sink
        self.records = holdfast.open("memory://", create=True).pipeline("p").records

    def take(self, to: Slot | None) -> Taken:
        def find(world: World) -> Found:
            if to is None:
                return Found(Known("nothing"), None, [])
            manifest = self.records.manifest(to)
            link = link_of_manifest(manifest)
            assert link is not None
            return Found(Known("checkpoint", link), manifest, [])

        return take_pipeline(self.records, Reason("rewind"), {"table": self.sink}, find, rewind=True)

    def run(self, taken: Taken, *epochs: int) -> None:
        publisher = Publisher(self.records, taken.generation.number, taken.found.follows)
        for epoch in epochs:
            to, rows = step(epoch, taken.generation.number), stage(self.folder, words(epoch))
            position = self.sink.commit(to, self.sink.prepare(to, rows), rows)
            about = Description(
                sinks={"table": SinkStatus(status="committed")},
                sink_positions={"table": msgspec.to_builtins(Target(to.after, to.decided, position))},
                metadata={LINK: encode_link(to.after)},
            )
            publisher.publish(publisher.begin(epoch), about)
        publisher.close()


def test_a_database_goes_back_the_way_it_came_and_never_sideways(tmp_path: Path) -> None:
    sink = SQLite(tmp_path / "t.db", "words")
    pipeline = Pipeline(tmp_path, sink)
    first = pipeline.take(None)
    pipeline.run(first, 0, 1, 2, 3)
    pipeline.run(pipeline.take(Slot(first.generation.number, 1)), 2, 3, 4)
    claims = pipeline.records.world().claims
    with pytest.raises(SinksAhead, match="only go back the way that it came"):
        pipeline.take(Slot(first.generation.number, 3))
    assert pipeline.records.world().claims == claims, "nothing was claimed"
    marker = sink.look()
    assert marker is not None
    assert marker.at.epoch == 4


@pytest.mark.parametrize("epochs", [(2,), (2, 3, 4)], ids=["forward", "back"])
def test_files_with_a_log_jump_to_what_was_left(tmp_path: Path, epochs: tuple[int, ...]) -> None:
    sink = Parquet(str(tmp_path / "files"))
    pipeline = Pipeline(tmp_path, sink)
    first = pipeline.take(None)
    pipeline.run(first, 0, 1, 2, 3)
    pipeline.run(pipeline.take(Slot(first.generation.number, 1)), *epochs)
    pipeline.take(Slot(first.generation.number, 3))
    marker = sink.look()
    assert marker is not None
    assert (marker.at.epoch, marker.decided) == (3, first.generation.number)
