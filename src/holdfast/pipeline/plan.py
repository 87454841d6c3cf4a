"""What would happen if a pipeline started now, from where it stands or from a checkpoint, told beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.decide.compatibility import Finding
from holdfast.decide.query_changes import VERDICTS, Verdict
from holdfast.decide.replayable import SourceFinding
from holdfast.decide.start import SinkPlan, StartPlan
from holdfast.epochs import Link
from holdfast.pipeline.takeover import Found

__all__ = ["PipelinePlan", "SinkAction"]

FRESH = "nothing: it would start from the beginning"


@dataclass(frozen=True)
class SinkAction:
    """What becomes of one sink, in words; `refused` if it is in the way."""

    sink: str
    does: str
    refused: bool = False


@dataclass(frozen=True)
class PipelinePlan:
    """What a start would find and do: the state, the changes of the query, the sinks, the epochs to run again.

    `state` is "warm" for Spark's directory as it lies there, "checkpoint", "origin" for a state from outside, which
    `origin` names, or "nothing". `replays` are the epochs that would run again on their recorded boundaries. `known` is
    False where the checkpoint says nothing of its query: then no change can be found. What is `accepted` by name stands
    in nobody's way; `is_done` says that it was forked so already. Printed, it is a report.
    """

    pipeline: str
    state: str
    checkpoint: str | None
    epoch: int
    findings: Sequence[Finding]
    sinks: Sequence[SinkAction]
    replays: Sequence[int]
    sources: Sequence[SourceFinding] = ()
    known: bool = True
    origin: str = ""
    accepted: Sequence[str] = ()
    is_done: bool = False

    @classmethod
    def of(
        cls,
        pipeline: str,
        findings: Sequence[Finding] | None,
        found: Found,
        plan: StartPlan,
        sources: Sequence[SourceFinding],
        accepted: Sequence[str] = (),
        *,
        is_done: bool = False,
    ) -> PipelinePlan:
        """From what a look at the pipeline has found; `findings` is None if the state's query is not known."""
        return cls(
            pipeline=pipeline,
            state="origin" if found.origin else found.state.kind,
            checkpoint=f"{pipeline}@slot:{found.follows.at}" if found.follows else None,
            epoch=found.state.at.epoch,
            findings=findings or (),
            sinks=_actions(plan),
            replays=plan.replays,
            sources=sources,
            known=findings is not None,
            origin=found.origin,
            accepted=tuple(accepted),
            is_done=is_done,
        )

    @property
    def verdict(self) -> Verdict:
        """The worst of all changes."""
        return max((finding.verdict for finding in self.findings), key=VERDICTS.index, default="compatible")

    @property
    def refused(self) -> bool:
        """Whether it would be refused, if no more is accepted by name."""
        return not self.is_done and (bool(self.accept) or any(sink.refused for sink in self.sinks))

    @property
    def accept(self) -> list[str]:
        """The names of all that would have to be accepted as well: changes of the query, and rows that are gone."""
        gone = {finding.slug for finding in self.sources if finding.severity == "refuse"}
        return sorted(({finding.name for finding in self.findings if finding.refused} | gone) - set(self.accepted))

    def document(self) -> dict[str, object]:
        """The plan as plain values."""
        return {
            "pipeline": self.pipeline,
            "state": self.state,
            "checkpoint": self.checkpoint,
            "epoch": self.epoch,
            "verdict": self.verdict,
            "origin": self.origin,
            "done": self.is_done,
            "refused": self.refused,
            "accept": self.accept,
            "query_known": self.known,
            "findings": [
                {
                    "name": finding.name,
                    "verdict": finding.verdict,
                    "where": finding.where,
                    "before": finding.before,
                    "after": finding.after,
                    "why": finding.change.why,
                }
                for finding in self.findings
            ],
            "sources": [{"slug": each.slug, "severity": each.severity, "why": each.why} for each in self.sources],
            "sinks": [{"sink": each.sink, "does": each.does, "refused": each.refused} for each in self.sinks],
            "replays": list(self.replays),
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.pipeline}, from {self._begins()}"
        if not self.known:
            yield "The checkpoint says nothing of the query that made it: changes can't be told."
        for finding in self.findings:
            yield f"{finding.verdict}: {finding}"
            yield f"    {finding.change.why}" + (self._consent(finding.name) if finding.refused else "")
        if self.known and not self.findings and self.state != "nothing":
            yield "The query is the one that made the state."
        for source in self.sources:
            yield str(source) + (self._consent(source.slug) if source.severity == "refuse" else "")
        for sink in self.sinks:
            yield f"sink {sink.sink}: {sink.does}"
        if self.replays:
            first, last = self.replays[0], self.replays[-1]
            epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
            yield f"{epochs} would run again on the recorded boundaries"
        yield self._ending()

    def _consent(self, name: str) -> str:
        return f"; accepted as {name}" if name in self.accepted else f"; to accept it: {name}"

    def _begins(self) -> str:
        match self.state:
            case "origin":
                return f"epoch {self.epoch}: {self.origin}"
            case "nothing":
                return FRESH
            case "warm":
                return f"Spark's directory as it lies there, at epoch {self.epoch}"
        return f"{self.checkpoint}, at epoch {self.epoch}"

    def _ending(self) -> str:
        if self.is_done:
            return "It is forked already, and was not started since: nothing would be done."
        if any(sink.refused for sink in self.sinks):
            return "It would be refused: a sink can't go along."
        if self.accept:
            return f"It would be refused, unless each is accepted by name: {', '.join(self.accept)}."
        return "It would begin there." if self.origin else "It would start."


def _actions(plan: StartPlan) -> list[SinkAction]:
    """What each sink would do, those in the way first."""
    stuck = [SinkAction(obstacle.sink, obstacle.why, refused=True) for obstacle in plan.obstacles]
    return stuck + [SinkAction(name, _does(sink, plan.state.at)) for name, sink in plan.sinks.items()]


def _does(sink: SinkPlan, state: Link) -> str:
    if sink.doubles:
        return f"stays ahead, and gets again what comes after epoch {state.epoch}"
    if sink.rolls_back:
        return f"goes back to epoch {state.epoch}" if state.epoch >= 0 else "goes back to nothing"
    if sink.begins:
        return f"begins here, without epochs up to {state.epoch}" if state.epoch >= 0 else "begins here"
    if sink.holds.epoch > state.epoch:
        return f"stays at epoch {sink.holds.epoch}, and skips what it holds"
    return f"stays at epoch {sink.holds.epoch}"
