"""What a sidecar has done by verbs of the command line, each in a process of its own: the way back, copies and drills.

So the sidecar itself stays without Spark and without anybody's code, and nothing that these do can end it. Each can be
killed at any instant: none of them leaves anything half done.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config import CopyTable, DrillTable, ReachTable
from holdfast.encryption.keys import COMMAND, FILE, TEXT
from holdfast.errors import Damage, VerbFailed
from holdfast.handles import Repository
from holdfast.state.scratch import scratch_folder
from holdfast.store.address import CloudAddress, read_address
from holdfast.text import clean

__all__ = ["Halted", "Outside"]

KEY_VARIABLES = {TEXT, FILE, COMMAND}
HALT = 0.2
KEPT_BYTES = 4096
"""So much of what a verb says on stderr is kept, of its end: Spark's log of a day is no reason to run out of memory."""
SHOWN_LINES = 3
LAST_WORDS = 5.0
"""How long a process that has ended is listened to: a child of it may hold stderr open."""


class Halted(Exception):
    """The sidecar is to end, and this can be done another time."""


class Outside:
    """Runs verbs about one repository in `folder`, and gives what they tell. Raises VerbFailed; Halted on `stop`."""

    def __init__(self, repository: Repository, folder: Path, stop: threading.Event) -> None:
        self._repository = repository
        self._folder = folder
        self._stop = stop

    def reach(self, table: ReachTable, pipeline: str, code: str) -> Sequence[Mapping[str, Any]]:
        """The reach of each checkpoint of a pipeline, as `Reach.document` has it, by its MODULE:ATTR."""
        verb = self._verb(f"list {code} --reach", "list", code, "--reach")
        document = verb.run(table.timeout.seconds)
        if document["pipeline"] != pipeline:
            raise verb.failed(f"it makes the pipeline {document['pipeline']!r}, not {pipeline!r}")
        rows: Sequence[Mapping[str, Any]] = document["reach"]
        return rows

    def copy(self, table: CopyTable, pipeline: str) -> Mapping[str, Any]:
        """Bring a pipeline in another repository up to this one: what was moved, as `holdfast copy` tells it."""
        verb, source = _Verb(self, f"copy -p {pipeline}", "copy", "-p", pipeline), self._repository.address
        verb.end("--from-option", source.url, source.options)
        verb.end("--to-option", table.url, table.options)
        verb.words += ["--to-key-file", table.key_file] if table.key_file else []
        verb.words += ["--decrypt"] if table.decrypt else []
        [copied] = verb.run(table.timeout.seconds)["pipelines"]
        for lost in copied["damaged"]:
            what = f"{pipeline}@slot:{lost['slot']}" if lost["slot"] else lost["key"]
            raise verb.failed(f"{what} was not copied: {lost['why']}")
        return dict(copied)

    def drill(self, table: DrillTable, pipeline: str, code: str | None) -> Mapping[str, Any]:
        """Drill a pipeline, with its MODULE:ATTR up to a start of Spark: what `holdfast drill` tells of it."""
        # Held here and not by the verb, which is killed when it takes too long. Of this process the next drill sweeps.
        with scratch_folder("drill", table.scratch) as scratch:
            words = ("--scratch", str(scratch), "--timeout", table.timeout.text)
            verb = self._verb(f"drill {pipeline}", "drill", pipeline, *words)
            verb.words += ["--start", code] if code else []
            drills = verb.run(table.timeout.seconds)["pipelines"]
        # Code that could not be loaded has a row of its own, before that of the pipeline.
        for step in (step for drilled in drills for step in drilled["steps"]):
            if step["error"] is not None:
                raise verb.failed(f"{step['name']}: {step['error']['message']}")
        [drilled] = drills
        return dict(drilled)

    def _verb(self, shown: str, *words: str) -> _Verb:
        verb = _Verb(self, shown, *words)
        verb.environment["HOLDFAST_REPO"] = self._repository.address.url
        verb.options("--repo-option", self._repository.address.options)
        return verb


class _Verb:
    """One verb with its words and what is in its environment. `shown` is what people see of it."""

    def __init__(self, outside: Outside, shown: str, *words: str) -> None:
        self._outside = outside
        self._shown = f"holdfast {shown}"
        self.words = [*words]
        self.environment = {name: value for name, value in os.environ.items() if name not in KEY_VARIABLES}
        self._secrets: list[str] = []
        self._ended = 0
        if (key := outside._repository.key) is not None:
            self._give(TEXT, key.text())

    def end(self, flag: str, url: str, options: Mapping[str, str]) -> None:
        """Give an end of a copy. An address may carry options too, and those may be secrets."""
        address = read_address(url, options)
        if isinstance(address, CloudAddress):
            url, options = address.url, address.options
        self.words.append(url)
        self.options(flag, options)

    def options(self, flag: str, options: Mapping[str, str]) -> None:
        """Give options of a store. Their values go into the environment: others can see arguments."""
        for name, value in options.items():
            variable = f"HOLDFAST_OPTION_{len(self.environment)}"
            self._give(variable, value)
            self.words += [flag, f"{name}=env:{variable}"]

    def run(self, seconds: float) -> Any:
        """Run it to its end; gives the document that it tells."""
        out, said, self._ended = self._run(seconds)
        try:
            document = msgspec.json.decode(out)
        except msgspec.DecodeError:
            last = f"; the last that it said: {said}" if said else ""
            raise self.failed(f"it ended with {self._ended} and told nothing{last}") from None
        if "error" in document:
            raise self.failed(document["error"]["message"])
        return document

    def failed(self, why: str) -> VerbFailed:
        return VerbFailed(self._shown, why, is_damage=self._ended == Damage.exit_code)

    def _give(self, variable: str, value: str) -> None:
        self.environment[variable] = value
        self._secrets.append(value)

    def _run(self, seconds: float) -> tuple[bytes, str, int]:
        """What it told, the end of what it said on stderr, and what it ended with."""
        said = _Said()
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *self.words, "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said.end,
                env=self.environment,
                cwd=self._outside._folder,
                start_new_session=True,
            )
        finally:
            said.listen()
        waited, stop = 0.0, self._outside._stop
        while True:
            try:
                out, _ = process.communicate(timeout=HALT)
                return out, said.last(self._secrets), process.returncode
            except subprocess.TimeoutExpired:
                waited += HALT
            if stop.is_set() or waited > seconds:
                # With its whole group: Spark's own process is a child of it.
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                if stop.is_set():
                    raise Halted
                raise self.failed(f"it did not end within {seconds:g} s")


class _Said:
    """The end of what a process says on a pipe. Give it `end`, then `listen`."""

    def __init__(self) -> None:
        self._read, self.end = os.pipe()
        self._kept = b""
        # A daemon: whoever holds the pipe open must not keep the sidecar from ending.
        self._thread = threading.Thread(target=self._listen, name="holdfast-said", daemon=True)

    def listen(self) -> None:
        """Begin, once the process has its end of the pipe, or there is none."""
        os.close(self.end)
        self._thread.start()

    def _listen(self) -> None:
        with os.fdopen(self._read, "rb", buffering=0) as pipe:
            while chunk := pipe.read(KEPT_BYTES):
                self._kept = (self._kept + chunk)[-KEPT_BYTES:]

    def last(self, secrets: Sequence[str]) -> str:
        """Its last lines as one, without what nobody may see."""
        self._thread.join(LAST_WORDS)
        text = self._kept.decode(errors="replace")
        for secret in filter(None, secrets):
            text = text.replace(secret, "…")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return clean(" / ".join(lines[-SHOWN_LINES:]))
