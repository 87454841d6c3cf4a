"""One batch after a checkpoint that was restored for a drill, into nothing.

Nothing of it is committed: Spark is ended in the middle of the batch, so that no source is told that it was read. With
the plan of a batch Spark does tell its sources that the one before was: a source that then takes files away is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from holdfast.checkpoint import Checkpoint
from holdfast.decide.start import decisions_that_count
from holdfast.epochs import EpochDecision
from holdfast.errors import DrillFailed, SourceCleans, SourcesGone
from holdfast.pipeline.ledger import Ledger
from holdfast.pipeline.sources.of_query import sources_of
from holdfast.pipeline.sources.past import logged_by, logged_in, pasts_of, stand_of_manifest, stand_of_offsets
from holdfast.pipeline.sources.relations import relations_of

__all__ = ["DrillBatch", "next_decision", "tables_at"]

NOTHING = "noop"
"""Spark's own sink that takes all rows and keeps none."""
CLEAN, OFF = "cleansource", "off"
"""The option of a file source that has files removed or moved once they were read, and its value that does not."""


class _Enough(Exception):
    """The batch was run, and shall not be committed."""


def next_decision(checkpoint: Checkpoint) -> EpochDecision | None:
    """What was decided on the epoch after a checkpoint, if that has reached the repository."""
    records, epoch = checkpoint.pipeline.records, checkpoint.epoch
    decisions = Ledger(records.store, records.keys.ledger).read(epoch)
    several = decisions_that_count(records.world(), decisions).get(epoch + 1)
    return several[0] if several else None


def tables_at(checkpoint: Checkpoint, recorded: EpochDecision | None, names: Collection[str]) -> dict[str, str]:
    """The versions of reference tables that the batch is run with, as far as they are recorded."""
    known = {name: offset.offsets["version"] for name, offset in checkpoint.manifest.table_offsets.items()}
    known |= recorded.tables if recorded is not None else {}
    return {name: version for name, version in known.items() if name in names}


class DrillBatch:
    """The batch after a checkpoint: as it was decided if that is recorded, else what Spark cuts."""

    def __init__(
        self,
        pipeline: str,
        frame: DataFrame,
        output_mode: str,
        checkpoint: Checkpoint,
        recorded: EpochDecision | None,
    ) -> None:
        self._pipeline = pipeline
        self._frame = frame
        self._output_mode = output_mode
        self._checkpoint = checkpoint
        self._recorded = recorded

    def ask(self, sources: Mapping[str, DataFrame]) -> None:
        """Raise SourceCleans for a source that Spark would touch, SourcesGone if what comes next is not there any more.

        Raises DrillFailed where the plan does not tell which sources there are. Call it before `run`: nothing else
        keeps Spark from taking files away.
        """
        self._refuse_cleaning(sources)
        manifest, recorded = self._checkpoint.manifest, self._recorded
        begin = furthest = stand_of_manifest(manifest)
        logged = logged_in(self._checkpoint.pipeline.records, manifest)
        if recorded is not None:
            furthest = stand_of_offsets(recorded.epoch, recorded.offsets)
            for key, entries in logged_by([recorded]).items():
                logged.setdefault(key, []).extend(entries)
        pasts = pasts_of(sources_of(self._frame, sources), begin, furthest, logged)
        refused = [each for source, past in pasts for each in source.judge(past) if each.severity == "refuse"]
        if refused:
            slugs = sorted({finding.slug for finding in refused})
            raise SourcesGone(self._pipeline, [str(finding) for finding in refused], slugs)

    def _refuse_cleaning(self, sources: Mapping[str, DataFrame]) -> None:
        relations = relations_of(self._frame)
        if isinstance(relations, str):
            # Of such a plan no option is known either, and what is taken away does not come back.
            raise DrillFailed(
                self._pipeline, f"whether a source takes files away (cleanSource) is not known: {relations}"
            )
        for source, relation in zip(sources_of(self._frame, sources), relations, strict=True):
            options = {name.lower(): value for name, value in relation.options.items()}
            if (clean := options.get(CLEAN, OFF)).lower() != OFF:
                raise SourceCleans(self._pipeline, source.name, clean)

    def run(self, directory: Path, seconds: float) -> str:
        """Run it from where the checkpoint was restored to, and say what it was. Raises DrillFailed."""
        if self._recorded is not None:
            _lay(directory, self._recorded)
        ran: list[tuple[int, int]] = []

        def into_nothing(batch: DataFrame, epoch: int) -> None:
            seen = Observation()
            counted = batch.observe(seen, F.count(F.lit(1)).alias("rows"))
            counted.write.format(NOTHING).mode("overwrite").save()
            ran.append((epoch, int(seen.get["rows"])))
            raise _Enough

        writer = self._frame.writeStream.outputMode(self._output_mode).foreachBatch(into_nothing)
        writer = writer.option("checkpointLocation", directory.as_uri()).trigger(availableNow=True)
        try:
            query = writer.start()
            try:
                if not query.awaitTermination(max(1, int(seconds))) and not ran:
                    raise DrillFailed(self._pipeline, f"no batch was over after {seconds:.0f} s")
            finally:
                query.stop()
        except (PySparkException, Py4JError) as error:
            if not ran:
                raise DrillFailed(self._pipeline, _first_line(error)) from error
        if not ran:
            return f"Spark started after batch {self._checkpoint.epoch}, and there was nothing new to read"
        return f"Spark ran batch {ran[0][0]} into nothing: {ran[0][1]} rows"


def _lay(directory: Path, decision: EpochDecision) -> None:
    """Have Spark find the batch planned, as a restart after a crash does."""
    for name, data in {**decision.sources, f"offsets/{decision.epoch}": decision.offsets}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
