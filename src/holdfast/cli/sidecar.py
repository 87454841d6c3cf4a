"""`holdfast watch --config`: a sidecar for all that a holdfast.toml names, and what such a file means."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session
from holdfast.cli.render import Cell, Column, Styled
from holdfast.cli.showing import Shown
from holdfast.cli.told import run_beside_signals, told_to_read_again
from holdfast.decide.retention import KeepPolicy
from holdfast.decide.schedule import Schedule, show_duration
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.config import Config, RepositoryTable
    from holdfast.handles import Repository
    from holdfast.sidecar import Sidecar

__all__ = ["run_config", "show_config"]

POLL = 0.2
LOOKED_AT_EVERY = 25
"""How many polls until the file is looked at again."""


def run_config(session: Session, file: str) -> None:
    """Run until told to stop. What is wrong in the file at the start ends it; what is wrong later is told."""
    from holdfast.config import read_config

    _named(session, read_config(file))
    shown = Shown(session, alone=False)
    running = _Running(session, Path(file), shown)
    with told_to_read_again() as again:
        run_beside_signals(lambda stop: running.run(stop, again))
    shown.stopped()


class _Running:
    """Runs the sidecar of a file, and another one once the file is to be read again."""

    def __init__(self, session: Session, file: Path, shown: Shown) -> None:
        self._session = session
        self._file = file
        self._shown = shown
        self._polls = 0

    def run(self, stop: threading.Event, again: threading.Event) -> None:
        sidecar: Sidecar | None = self._made()
        while sidecar is not None:
            stamp = self._stamp()
            with ThreadPoolExecutor(1, thread_name_prefix="holdfast-sidecar") as pool:
                ended = threading.Event()
                running = pool.submit(sidecar.run, ended)
                try:
                    while not (stop.is_set() or running.done()):
                        if again.is_set():
                            again.clear()
                            stamp = self._stamp()
                            if (after := self._made_again()) is not None:
                                break
                        stamp = self._look_at_file(stamp)
                        stop.wait(POLL)
                    else:
                        after = None
                finally:
                    ended.set()
                running.result()
            sidecar = after

    def _made(self) -> Sidecar:
        from holdfast.config import read_config
        from holdfast.sidecar import Sidecar

        config = read_config(self._file)
        repository = _open(self._session, config)
        return Sidecar(config, repository, self._file, tell=self._shown.tell, retry=_retry(self._session, config))

    def _made_again(self) -> Sidecar | None:
        try:
            sidecar = self._made()
        except HoldfastError as error:
            self._shown.say("refused", f"the file was not taken up, and the old one goes on: {error}")
            return None
        self._shown.say("reloaded", f"{self._file} was read again")
        return sidecar

    def _look_at_file(self, stamp: tuple[int, int] | None) -> tuple[int, int] | None:
        """Say that the file has changed: a half-written one must not be taken up by itself."""
        self._polls += 1
        if self._polls % LOOKED_AT_EVERY:
            return stamp
        now = self._stamp()
        if now != stamp and now is not None:
            self._shown.say("changed", f"{self._file} has changed: send SIGHUP to {os.getpid()} to take it up")
        return now

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino


def _named(session: Session, config: Config) -> RepositoryTable:
    """Where the repository is: the file says so, or else the command line or the environment."""
    from holdfast.config import RepositoryTable

    source = click.get_current_context(silent=True)
    by_hand = source is not None and source.get_parameter_source("repo") is click.core.ParameterSource.COMMANDLINE
    if config.repository is None:
        return RepositoryTable(url=session.require_url(), options=session.options)
    if by_hand:
        raise click.UsageError("The file names the repository: give --repo only if it does not.")
    return config.repository


def _open(session: Session, config: Config) -> Repository:
    from holdfast.handles import open_url

    table = _named(session, config)
    key = session.key(config.repository)
    return open_url(table.url, options=table.options, retry=_retry(session, config), key=key)


def _retry(session: Session, config: Config) -> Any:
    from holdfast.store import RetryPolicy

    if session.retry_seconds is not None or config.repository is None:
        return session.retry()
    return RetryPolicy(budget_seconds=config.repository.retry.seconds)


# ---- what a file means ----


def show_config(session: Session, file: str) -> None:
    """Say what a file means, without running any of it. The repository is not asked."""
    from holdfast.config import read_config
    from holdfast.sidecar.meaning import not_available
    from holdfast.sidecar.sidecar import state_file
    from holdfast.store.address import redact

    config = read_config(file)
    table, path = _named(session, config), state_file(config, Path(file))
    if session.as_json:
        session.document(
            {
                "repository": redact(table.url),
                "state": str(path),
                "pipelines": {name: dict(facts) for name, facts in _pipelines(config)},
                "check": _check(config),
                "copies": dict(_copies(config)),
                "drill": _drill(config),
                "alerts": dict(_alerts(config)),
                "receivers": {name: receiver.shown for name, receiver in config.alerts.to.items()},
                "not_available": list(not_available(config)),
            }
        )
        return
    output = session.output
    facts: list[tuple[str, Cell]] = [("repository", redact(table.url)), ("state", str(path)), ("check", _check(config))]
    facts += [(f"copy to {name}", what) for name, what in _copies(config)]
    output.facts([*facts, ("drill", _drill(config))])
    rows = [[name, *(value or "-" for value in facts.values())] for name, facts in _pipelines(config)]
    if rows:
        output.heading("Pipelines")
        names = ("pipeline", "directory", "every", "keep", "code")
        output.table([Column(name, wraps=name == "directory") for name in names], rows)
    output.heading("Alerts")
    output.facts([(name, value) for name, value in _alerts(config)])
    output.facts([(f"to {name}", receiver.shown) for name, receiver in config.alerts.to.items()])
    for what in not_available(config):
        output.line(Styled(f"not available: {what}", "yellow"))


def _pipelines(config: Config) -> Iterator[tuple[str, dict[str, str | None]]]:
    from holdfast.store.address import redact

    for name, table in config.pipelines.items():
        keep, every = table.keep or config.keep, table.every or config.watch.every
        yield (
            name,
            {
                "directory": redact(table.directory) if table.directory else None,
                "every": _every(every) if table.directory else None,
                "keep": _keep(keep.policy) if keep else None,
                "code": table.code,
            },
        )
    for name, root in config.roots.items():
        keep = root.keep or config.keep
        yield (
            f"all of {name}",
            {
                "directory": redact(root.directory),
                "every": _every(root.every or config.watch.every),
                "keep": _keep(keep.policy) if keep else None,
                "code": None,
            },
        )


def _every(schedule: Schedule) -> str:
    if schedule.every_ms is not None:
        return show_duration(schedule.every_ms)
    return f"{schedule.every_events} batches"


def _keep(policy: KeepPolicy) -> str:
    counted = [f"{rule} {count}" for rule, count in vars(policy).items() if count and rule != "within_ms"]
    within = [f"within {show_duration(policy.within_ms)}"] if policy.within_ms else []
    return ", ".join(counted + within)


def _check(config: Config) -> str:
    if config.check is None:
        return "never"
    read = f", reading {config.check.read_data:g} % of the data" if config.check.read_data else ""
    return f"every {config.check.every.text}{read}"


def _copies(config: Config) -> Iterator[tuple[str, str]]:
    from holdfast.store.address import redact

    for name, table in config.copies.items():
        yield name, f"{redact(table.url)}, every {table.every.text}"


def _drill(config: Config) -> str:
    if config.drill is None:
        return "never"
    return f"every {config.drill.every.text}{', with a start of Spark' if config.drill.start else ''}"


def _alerts(config: Config) -> Iterator[tuple[str, str]]:
    alerts = config.alerts
    failures = f"after {alerts.capture_failures} in a row" if alerts.capture_failures else "off"
    yield "checkpoint-age", f"over {alerts.checkpoint_age.text}" if alerts.checkpoint_age else "off"
    yield "capture", failures
    yield "upkeep", failures
    yield "damage", "on" if alerts.damage else "off"
    yield "retention", f"under {alerts.retention.text}" if alerts.retention else "off"
    yield "way-back", "on" if alerts.way_back else "off"
    yield "repeat", f"every {alerts.repeat.text}" if alerts.repeat else "never"
