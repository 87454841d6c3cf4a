"""Another was faster, or holds it: exit 5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors.base import HoldfastError

__all__ = [
    "ActivatedElsewhere",
    "BeingForgotten",
    "ChangedWhileRead",
    "Diverged",
    "Fenced",
    "KeysChanged",
    "LostRace",
    "NameTaken",
    "NoAnswer",
    "Overtaken",
]


class LostRace(HoldfastError):
    """Somebody else was there first; nothing is broken."""

    exit_code = 5


@dataclass(eq=False)
class Fenced(LostRace):
    pipeline: str
    generation: int
    by: str
    code = "HF-4001"
    template = "generation {generation} of {pipeline!r} is stale: {by}"
    advice = "Another run has taken the pipeline over. Stop this one, or claim anew and recover from where it stands."


@dataclass(eq=False)
class BeingForgotten(LostRace):
    checkpoint: str
    code = "HF-4002"
    template = "{checkpoint} is being pruned, or a prune of it was interrupted"
    advice = "Choose another checkpoint; `holdfast prune` finishes an interrupted one."


@dataclass(eq=False)
class NameTaken(LostRace):
    name: str
    checkpoint: str
    code = "HF-4003"
    template = "the name {name!r} is taken by {checkpoint}"
    advice = "Choose another name, or remove the old one with `holdfast savepoint PIPELINE@NAME --remove`."


@dataclass(eq=False)
class Diverged(LostRace):
    key: str
    code = "HF-4004"
    template = "source and destination have diverged at {key}"
    advice = "The destination was activated or written by someone else; copy to another place."


@dataclass(eq=False)
class NoAnswer(LostRace):
    pipeline: str
    seconds: float
    code = "HF-4005"
    template = "nothing that runs {pipeline!r} answered within {seconds:.0f} s"
    advice = "Is it running? A request is answered with the next checkpoint; wait longer with --timeout."


@dataclass(eq=False)
class Overtaken(LostRace):
    pipeline: str
    why: str
    code = "HF-4006"
    template = "a checkpoint of {pipeline!r} was overtaken: {why}"
    advice = "Another publisher of this generation has moved on; nothing is lost. Begin a new checkpoint."


@dataclass(eq=False)
class ChangedWhileRead(LostRace):
    url: str
    name: str
    code = "HF-4007"
    template = "{url}: {name} was changed while it was read"
    advice = "Its writer is at work on it. Read it again, or take a checkpoint that is older or newer."


@dataclass(eq=False)
class KeysChanged(LostRace):
    url: str
    code = "HF-4020"
    template = "{url}: somebody else has changed its keys meanwhile"
    advice = "Look with `holdfast key list` and try again."


@dataclass(eq=False)
class ActivatedElsewhere(LostRace):
    pipeline: str
    sinks: Sequence[str]
    generation: int
    code = "HF-4030"
    template = (
        "pipeline {pipeline!r} runs elsewhere: its sinks are held by generation {generation}, which was never claimed "
        "in this repository: {sinks}"
    )
    advice = (
        "A copy of it was activated. Leave this one stopped; to come back, copy that repository to this one, or to a "
        "new one if they have diverged, and activate it there. To take it back as it is: accept activated-elsewhere."
    )
