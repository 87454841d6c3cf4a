"""The captures of everything that holdfast.toml names: one fleet for its pipelines, one for each root."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.capturing import SHARED, watch_directory, watch_each
from holdfast.config import Config, Duration, KeepTable
from holdfast.decide.alerts import CaptureFacts
from holdfast.handles import Repository
from holdfast.sidecar.events import Listener
from holdfast.spark.watch import Watcher
from holdfast.spark.watch_each import WatchMany
from holdfast.store import RetryPolicy

__all__ = ["Fleet", "Member", "fleets_of", "members_of"]

MOST_THREADS = 16
"""So many of the named pipelines are looked at at once; a thread waits most of the time."""


@dataclass(frozen=True)
class Member:
    """What the file asks for one pipeline."""

    name: str
    keep: KeepTable | None
    checkpoint_age: Duration | None
    code: str | None = None
    capture: CaptureFacts | None = None
    """How its captures go; None if it is not captured here."""


@dataclass(frozen=True)
class Fleet:
    """Watches that run together. `root` names the table of a root; without it these are the named pipelines."""

    watches: WatchMany
    root: str | None

    @property
    def scans(self) -> CaptureFacts:
        """How the look for directories goes."""
        return CaptureFacts(self.watches.scans_failing, self.watches.scan_error)

    def captures(self) -> dict[str, CaptureFacts]:
        """How the captures of each pipeline go."""
        refused = self.watches.refusals()
        found = {name: CaptureFacts(error=why, refused=True) for name, why in refused.items()}
        for name, status in self.watches.status().items():
            if name not in found:
                found[name] = CaptureFacts(status.failing, status.last_error or "", lag=status.lag)
        for name in self.watches.found or ():
            found.setdefault(name, CaptureFacts())
        return found


def fleets_of(config: Config, repository: Repository, retry: RetryPolicy | None, tell: Listener) -> list[Fleet]:
    """The fleets, not yet running."""
    fleets = []
    named = {name: table for name, table in config.pipelines.items() if table.directory is not None}
    if named:

        def make(pipeline: str, directory: str) -> Watcher:
            table = named[pipeline]
            return watch_directory(
                directory,
                repository,
                pipeline=pipeline,
                every=table.every or config.watch.every,
                quiet=(table.quiet or config.watch.quiet).text,
                options=table.options,
                file_sink=table.file_sink,
                sink_options=table.sink_options,
                retry=retry,
                limits=SHARED,
                tell=many.tell,
            )

        places = {name: [table.directory or ""] for name, table in named.items()}
        many = WatchMany(lambda: places, make, threads=min(MOST_THREADS, len(named)), tell=tell)
        fleets.append(Fleet(many, None))
    for name, root in config.roots.items():
        each = watch_each(
            root.directory,
            repository,
            every=root.every or config.watch.every,
            quiet=(root.quiet or config.watch.quiet).text,
            options=root.options,
            retry=retry,
            tell=tell,
        )
        fleets.append(Fleet(each, name))
    return fleets


def members_of(config: Config, fleets: list[Fleet]) -> dict[str, Member]:
    """Every pipeline that is known by now. One that is named in the file is what its own table says."""
    captures: dict[str, CaptureFacts] = {}
    members: dict[str, Member] = {}
    for fleet in fleets:
        for name, capture in fleet.captures().items():
            captures.setdefault(name, capture)
            if fleet.root is not None:
                root = config.roots[fleet.root]
                members[name] = Member(name, root.keep or config.keep, root.checkpoint_age, None, captures[name])
    for name, table in config.pipelines.items():
        keep = table.keep or config.keep
        members[name] = Member(name, keep, table.checkpoint_age, table.code, captures.get(name))
    return members
