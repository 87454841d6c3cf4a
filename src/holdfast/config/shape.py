"""The tables of holdfast.toml and what each key means.

docs/reference/config.md is written from here: from the docstring of each table and the description of each key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from holdfast.decide.alerts import Rules
from holdfast.decide.retention import KeepPolicy
from holdfast.decide.schedule import Schedule, parse_duration, parse_every
from holdfast.errors import BadValue

__all__ = [
    "AlertsTable",
    "CheckTable",
    "Config",
    "CopyTable",
    "DrillTable",
    "Duration",
    "KeepTable",
    "PipelineTable",
    "ReachTable",
    "ReceiverTable",
    "RepositoryTable",
    "RootTable",
    "WatchTable",
]


@dataclass(frozen=True)
class Duration:
    """A time span as it is written, such as 30s or 7d."""

    text: str

    @property
    def ms(self) -> int:
        return parse_duration(self.text)

    @property
    def seconds(self) -> float:
        return self.ms / 1000

    @staticmethod
    def of(text: str) -> Duration:
        """Read one; BadValue says what is wrong with it."""
        if parse_duration(text) < 1:
            raise BadValue(f"duration {text!r}", "must be more than nothing")
        return Duration(text)


def _says(description: str, **more: Any) -> msgspec.Meta:
    return msgspec.Meta(description=description, **more)


class RepositoryTable(msgspec.Struct, kw_only=True, frozen=True):
    """Where the checkpoints are kept. Without it `--repo` or HOLDFAST_REPO says so."""

    url: Annotated[str, _says("The repository: a path, or `file://`, `s3://`, `gs://`, `az://`.")]
    options: Annotated[dict[str, str], _says("Options of its store, such as credentials.")] = {}
    key_file: Annotated[str | None, _says("A file with the key, if the repository is encrypted.")] = None
    key_command: Annotated[
        str | None, _says("A command that prints the key, in place of a file; it is run without a shell.")
    ] = None
    retry: Annotated[Duration, _says("How long to keep trying when the store fails.")] = Duration("60s")

    def __post_init__(self) -> None:
        if self.key_file and self.key_command:
            raise BadValue("repository", "has key_file and key_command: give one of them")


class WatchTable(msgspec.Struct, kw_only=True, frozen=True):
    """What holds for every pipeline and root that does not say otherwise."""

    every: Annotated[Schedule, _says('How often to capture: `30s`, `5m`, `"10 batches"`.')] = parse_every("30s")
    quiet: Annotated[
        Duration, _says("When nothing in a directory has changed for so long, its last batch is taken too.")
    ] = Duration("90s")


class KeepTable(msgspec.Struct, kw_only=True, frozen=True):
    """Which checkpoints to keep, as `holdfast prune` has it; the rules add up. Without it nothing is removed."""

    last: Annotated[int, _says("The newest so many.", ge=0)] = 0
    hourly: Annotated[int, _says("The newest of each hour, for so many hours.", ge=0)] = 0
    daily: Annotated[int, _says("The newest of each day (UTC), for so many days.", ge=0)] = 0
    weekly: Annotated[int, _says("The newest of each ISO week, for so many weeks.", ge=0)] = 0
    monthly: Annotated[int, _says("The newest of each month, for so many months.", ge=0)] = 0
    within: Annotated[Duration | None, _says("All that are no older than this before the newest.")] = None
    every: Annotated[Duration, _says("How often to prune.")] = Duration("1h")

    def __post_init__(self) -> None:
        if self.policy.empty:
            raise BadValue("keep", "says nothing to keep: give at least one rule above 0, or leave it out")

    @property
    def policy(self) -> KeepPolicy:
        within_ms = self.within.ms if self.within else 0
        return KeepPolicy(self.last, self.hourly, self.daily, self.weekly, self.monthly, within_ms)


class PipelineTable(msgspec.Struct, kw_only=True, frozen=True):
    """One pipeline. The name of the table is the name of the pipeline."""

    directory: Annotated[
        str | None,
        _says("The query's `checkpointLocation`. Without it nothing is captured here, and all else is looked after."),
    ] = None
    options: Annotated[dict[str, str], _says("Options of the directory's store.")] = {}
    every: Annotated[Schedule | None, _says("How often to capture.")] = None
    quiet: Annotated[Duration | None, _says("As in `[watch]`.")] = None
    file_sink: Annotated[str | None, _says("The path of the query's file sink, whose log is kept along.")] = None
    sink_options: Annotated[dict[str, str], _says("Options of the file sink's store.")] = {}
    code: Annotated[
        str | None,
        _says("MODULE:ATTR of the `holdfast.Pipeline`: its sinks and sources are asked how far back they can go."),
    ] = None
    keep: Annotated[KeepTable | None, _says("Retention of this pipeline, in place of `[keep]`.")] = None
    checkpoint_age: Annotated[Duration | None, _says("In place of the one in `[alerts]`.")] = None


class RootTable(msgspec.Struct, kw_only=True, frozen=True):
    """A folder: every Spark checkpoint directory below it is captured, and new ones are found within a minute.

    Pipelines are named by their paths below it, with dots for slashes; the name of the table is yours.
    """

    directory: Annotated[str, _says("The folder.")]
    options: Annotated[dict[str, str], _says("Options of its store.")] = {}
    every: Annotated[Schedule | None, _says("How often to capture each.")] = None
    quiet: Annotated[Duration | None, _says("As in `[watch]`.")] = None
    keep: Annotated[KeepTable | None, _says("Retention of each pipeline below, in place of `[keep]`.")] = None
    checkpoint_age: Annotated[Duration | None, _says("In place of the one in `[alerts]`.")] = None


class CheckTable(msgspec.Struct, kw_only=True, frozen=True):
    """Regular checks of every pipeline, as `holdfast check` does them. Without it none are made."""

    every: Annotated[Duration, _says("How often to check each pipeline.")] = Duration("1d")
    read_data: Annotated[float, _says("Percent of the data to read and compare with its digests.", ge=0, le=100)] = 0.0


class CopyTable(msgspec.Struct, kw_only=True, frozen=True):
    """Another repository that every pipeline is copied to, as `holdfast copy` does it. The name of the table is yours.

    It has to be there: make it once with `holdfast init`.
    """

    url: Annotated[str, _says("The other repository.")]
    options: Annotated[dict[str, str], _says("Options of its store, such as credentials.")] = {}
    key_file: Annotated[
        str | None, _says("A file with its key, if it is encrypted with another one than the repository.")
    ] = None
    decrypt: Annotated[bool, _says("Copy out of an encrypted repository into one that is not.")] = False
    every: Annotated[Duration, _says("How often to copy each pipeline.")] = Duration("15m")
    timeout: Annotated[Duration, _says("How long one may take; it goes on where it was with the next one.")] = Duration(
        "6h"
    )


class DrillTable(msgspec.Struct, kw_only=True, frozen=True):
    """Regular drills of every pipeline, as `holdfast drill` does them. Without it none are made."""

    every: Annotated[Duration, _says("How often to drill each pipeline.")] = Duration("1d")
    start: Annotated[
        bool, _says("Have Spark start for one batch as well, without the sinks; only of pipelines with `code`.")
    ] = False
    scratch: Annotated[
        str | None, _says("The folder to restore to, with room for the largest pipeline.  The system's, if left out.")
    ] = None
    timeout: Annotated[Duration, _says("How long one may take.")] = Duration("1h")


class ReachTable(msgspec.Struct, kw_only=True, frozen=True):
    """How often pipelines with `code` are asked how far back they can go. It starts Spark for a moment."""

    every: Annotated[Duration, _says("How often to ask each pipeline.")] = Duration("1h")
    timeout: Annotated[Duration, _says("How long it may take.")] = Duration("10m")


class ReceiverTable(msgspec.Struct, kw_only=True, frozen=True):
    """Who is told of alerts: a webhook or a command. The name of the table is yours."""

    webhook: Annotated[str | None, _says("A URL that gets each message as a POST of JSON.")] = None
    headers: Annotated[dict[str, str], _says("Headers to send along, such as Authorization.")] = {}
    command: Annotated[
        list[str] | None, _says("A program and its arguments, run for each message: JSON on stdin, and in variables.")
    ] = None
    timeout: Annotated[Duration, _says("How long it may take to accept a message.")] = Duration("10s")

    def __post_init__(self) -> None:
        if (self.webhook is None) == (self.command is None):
            raise BadValue("a receiver", "is a webhook or a command, and exactly one of them")
        if self.command is not None and not self.command:
            raise BadValue("command", "is empty: the first word is the program")
        if self.headers and self.webhook is None:
            raise BadValue("headers", "go with a webhook")
        if self.webhook is not None and not _is_http(self.webhook):
            # What was given is not repeated: it may hold a token.
            raise BadValue("webhook", "is no address: write http://HOST… or https://HOST…")
        for name, value in self.headers.items():
            if any(character in name + value for character in "\r\n"):
                raise BadValue("headers", f"{name.strip()} has a line break in it")

    @property
    def shown(self) -> str:
        """The receiver without any secret: of an address only its host, of a command only the program."""
        if self.webhook is not None:
            parts = urlsplit(self.webhook)
            return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
        assert self.command is not None
        return self.command[0]


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:
        return False


class AlertsTable(msgspec.Struct, kw_only=True, frozen=True):
    """What is worth telling, and whom."""

    checkpoint_age: Annotated[Duration | None, _says("The newest checkpoint may be so old. Off if it is left out.")] = (
        None
    )
    idle: Annotated[
        bool, _says("Whether a checkpoint can be too old although the query has committed nothing after it.")
    ] = True
    capture_failures: Annotated[
        int, _says("So many captures in a row, or checks and prunes, may fail; 0 switches it off.", ge=0)
    ] = 3
    damage: Annotated[bool, _says("Tell of damage in the repository.")] = True
    retention: Annotated[
        Duration | None,
        _says("Sources must keep what comes after a savepoint for at least so long from now. Needs `code`."),
    ] = None
    way_back: Annotated[bool, _says("Tell of sinks that can't go back to a savepoint. Needs `code`.")] = True
    repeat: Annotated[Duration | None, _says("Tell again what still holds after so long. Never, if left out.")] = None
    look: Annotated[Duration, _says("How often to look at the newest checkpoint of each pipeline.")] = Duration("30s")
    to: Annotated[dict[str, ReceiverTable], _says("The receivers, each a table of its own.")] = {}

    def rules(self, checkpoint_age: Duration | None) -> Rules:
        """The rules for a pipeline that may have an age of its own."""
        age, retention = checkpoint_age or self.checkpoint_age, self.retention
        return Rules(
            checkpoint_age_ms=age.ms if age else None,
            idle=self.idle,
            capture_failures=self.capture_failures or None,
            damage=self.damage,
            retention_ms=retention.ms if retention else None,
            way_back=self.way_back,
        )


class Config(msgspec.Struct, kw_only=True, frozen=True):
    """The whole file."""

    repository: Annotated[RepositoryTable | None, _says("Where the checkpoints are kept.")] = None
    state: Annotated[
        str | None,
        _says(
            "A file that the sidecar writes: what it has told whom, and when it last checked, pruned, copied, drilled. "
            "Beside this file, with `.state.json` for `.toml`, if it is left out."
        ),
    ] = None
    watch: Annotated[WatchTable, _says("What holds for all captures.")] = WatchTable()
    pipelines: Annotated[dict[str, PipelineTable], _says("The pipelines, each a table of its own.")] = {}
    roots: Annotated[dict[str, RootTable], _says("Folders with many checkpoint directories.")] = {}
    keep: Annotated[KeepTable | None, _says("Retention.")] = None
    check: Annotated[CheckTable | None, _says("Regular checks.")] = None
    copies: Annotated[dict[str, CopyTable], _says("Repositories to copy to, each a table of its own.")] = {}
    drill: Annotated[DrillTable | None, _says("Regular drills.")] = None
    reach: Annotated[ReachTable, _says("Regular looks at the way back.")] = ReachTable()
    alerts: Annotated[AlertsTable, _says("Alerts.")] = AlertsTable()
