"""It is not there: exit 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors.base import HoldfastError

__all__ = [
    "CheckpointMissing",
    "NoPipelines",
    "NoWholeBatch",
    "NotFound",
    "ObjectMissing",
    "PipelineMissing",
    "RepositoryMissing",
]


class NotFound(HoldfastError):
    """What was asked for is not there, and nothing says that it should be."""

    exit_code = 4


@dataclass(eq=False)
class ObjectMissing(NotFound):
    url: str
    key: str
    code = "HF-3001"
    template = "{url}: there is no object {key!r}"


@dataclass(eq=False)
class RepositoryMissing(NotFound):
    url: str
    code = "HF-3002"
    template = "{url} is not a Holdfast repository"
    advice = "Make one with `holdfast init`, or check the address."


@dataclass(eq=False)
class PipelineMissing(NotFound):
    pipeline: str
    known: Sequence[str]
    code = "HF-3003"
    template = "there is no pipeline {pipeline!r}; known: {known}"
    advice = "`holdfast list` shows the pipelines of the repository."


@dataclass(eq=False)
class CheckpointMissing(NotFound):
    reference: str
    why: str
    code = "HF-3004"
    template = "no checkpoint {reference!r}: {why}"
    advice = "`holdfast list PIPELINE` shows what there is."


@dataclass(eq=False)
class NoWholeBatch(NotFound):
    directory: str
    why: str
    code = "HF-3005"
    template = "{directory} holds no batch that could be captured: {why}"
    advice = "Wait for the next batch; if the query has ended, say so with --stopped, or let --quiet find it out."


@dataclass(eq=False)
class NoPipelines(NotFound):
    url: str
    code = "HF-3006"
    template = "{url} has no pipelines: nothing was proven"
    advice = (
        "Look whether it is the right repository; `holdfast capture` or `holdfast run` puts the first pipeline there."
    )
