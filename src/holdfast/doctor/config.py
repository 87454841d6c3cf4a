"""A holdfast.toml: is it right, are the places that it names there, and what of it is not available."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from holdfast.config import Config, CopyTable
from holdfast.doctor.places import examine_directory
from holdfast.doctor.result import Result
from holdfast.encryption.keys import Key
from holdfast.errors import HoldfastError, KeyMissing
from holdfast.handles import open_url
from holdfast.sidecar.meaning import not_available
from holdfast.sidecar.sidecar import state_file
from holdfast.store import RetryPolicy

__all__ = ["examine_config"]


def examine_config(config: Config, file: Path, retry: RetryPolicy | None) -> Iterator[Result]:
    """All that a file names but the repository. Nobody is told anything, and no code is run."""
    yield Result("config", "ok", str(file))
    yield _state(state_file(config, file))
    for name, table in config.pipelines.items():
        if table.directory is not None:
            yield from examine_directory(f"pipeline {name}", table.directory, table.options, retry)
        if table.code is not None:
            yield _code(name, table.code, file.absolute().parent)
    for name, root in config.roots.items():
        yield from examine_directory(f"root {name}", root.directory, root.options, retry, is_root=True)
    for name, copy in config.copies.items():
        yield _copy(f"copy {name}", copy, retry)
    if config.drill is not None and config.drill.scratch is not None:
        yield _scratch(Path(config.drill.scratch))
    for name, receiver in config.alerts.to.items():
        if receiver.command is not None and shutil.which(receiver.command[0]) is None:
            advice = "Give the whole path of a program that can be run."
            yield Result(f"receiver {name}", "failed", f"there is no program {receiver.shown}", advice)
        else:
            yield Result(f"receiver {name}", "ok", receiver.shown)
    for what in not_available(config):
        yield Result("not available", "none", what)


def _state(path: Path) -> Result:
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if os.access(path if path.exists() else above, os.W_OK):
        return Result("state", "ok", str(path))
    advice = "Name a file that can be written with `state` in holdfast.toml."
    return Result("state", "failed", f"{path} can't be written", advice)


def _copy(what: str, table: CopyTable, retry: RetryPolicy | None) -> Result:
    try:
        key = Key.from_file(table.key_file) if table.key_file else None
        found = open_url(table.url, options=table.options, retry=retry, key=key)
    except KeyMissing:
        return Result(what, "ok", "encrypted: the key of the repository has to open it")
    except HoldfastError as error:
        return Result(what, "failed", error.message, error.hint)
    return Result(what, "ok", f"{found.url}, {found.id}")


def _scratch(place: Path) -> Result:
    if place.is_dir() and os.access(place, os.W_OK):
        return Result("scratch of drills", "ok", str(place))
    advice = "Make the folder, or name another one as `scratch` in [drill]."
    return Result("scratch of drills", "failed", f"{place} is no folder that can be written", advice)


def _code(name: str, code: str, folder: Path) -> Result:
    module = code.partition(":")[0]
    # Only its top is looked for: to find the rest, what is around it would have to be run.
    if PathFinder.find_spec(module.partition(".")[0], [str(folder), *sys.path]) is None:
        advice = f"It is imported from {folder} or from what is installed here."
        return Result(f"code of {name}", "failed", f"there is no module {module}", advice)
    return Result(f"code of {name}", "ok", code)
