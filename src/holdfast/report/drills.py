"""What drills have shown: as plain values, as text, and as JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from holdfast.drilling import Drilled, Step
from holdfast.report.plain import iso_time, plain

__all__ = ["describe_drills", "junit_of_drills", "text_of_drills"]


def describe_drills(drills: Sequence[Drilled]) -> dict[str, Any]:
    return {"ok": all(drilled.good for drilled in drills), "pipelines": [_describe(drilled) for drilled in drills]}


def _describe(drilled: Drilled) -> dict[str, Any]:
    times = {"started": iso_time(drilled.started_ms), "taken": iso_time(drilled.taken_ms)}
    return {**plain(drilled), **times, "ok": drilled.good, "seconds": drilled.seconds}


def text_of_drills(drills: Sequence[Drilled]) -> str:
    """One line for each pipeline, and below it one for each step."""
    lines = []
    for drilled in drills:
        at = f" {drilled.slot}, epoch {drilled.epoch}, taken {iso_time(drilled.taken_ms)}" if drilled.slot else ""
        lines.append(f"{drilled.pipeline}: {'good' if drilled.good else 'FAILED'}{at}")
        lines += [f"  {step.name:<10}{step.seconds:8.2f} s  {_said(step)}" for step in drilled.steps]
    return "\n".join(lines) + "\n"


def junit_of_drills(drills: Sequence[Drilled]) -> str:
    """A suite for each pipeline, a case for each step: as build servers show them."""
    root = ElementTree.Element("testsuites", name="holdfast drill")
    for drilled in drills:
        failed = sum(step.error is not None for step in drilled.steps)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=drilled.pipeline,
            tests=str(len(drilled.steps)),
            failures=str(failed),
            time=f"{drilled.seconds:.3f}",
            timestamp=iso_time(drilled.started_ms) or "",
        )
        for step in drilled.steps:
            of = {"classname": f"holdfast.drill.{drilled.pipeline}", "name": step.name}
            case = ElementTree.SubElement(suite, "testcase", {**of, "time": f"{step.seconds:.3f}"})
            if step.error is not None:
                ElementTree.SubElement(case, "failure", type=step.error.code, message=_plain_text(step.error.message))
            if step.said:
                ElementTree.SubElement(case, "system-out").text = _plain_text(step.said)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _said(step: Step) -> str:
    if step.error is None:
        return _plain_text(step.said)
    return _plain_text(f"{step.error.code}: {step.error.message}")


def _plain_text(text: str) -> str:
    """Names and messages may hold what no XML may, and no terminal should."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
