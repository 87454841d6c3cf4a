"""A pipeline by MODULE:ATTR, as `holdfast run`, `plan`, `rewind` and `fork` are given it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.decide.fitting import least_java
from holdfast.decide.spark_versions import Version, parse_version
from holdfast.errors import HoldfastError, JavaMissing, NotLoadable, UserCodeFailed
from holdfast.spark.java import use_java

if TYPE_CHECKING:
    from holdfast.pipeline.pipeline import Pipeline

__all__ = ["TARGET", "load_pipeline", "said_aside"]

TARGET = click.Argument(["target"], metavar="MODULE:ATTR")
NO_JAVA = "JAVA_GATEWAY_EXITED"
"""What PySpark calls it."""
OUT, ERR = 1, 2


def load_pipeline(target: str) -> Pipeline:
    """The pipeline that MODULE:ATTR names: ATTR is one, or a function without arguments that returns one.

    The current folder can be imported from, and Spark finds a Java as `holdfast doctor` does. What the code prints
    meanwhile goes to stderr, and so does what a Java prints that it starts: stdout is for the verb's own. Raises
    NotLoadable if there is no such thing, UserCodeFailed if the module or the function raises, and JavaMissing if that
    was for want of a Java.
    """
    module, colon, attribute = target.partition(":")
    if not (module and colon and attribute):
        raise NotLoadable(target, "write it as MODULE:ATTR, such as jobs.orders:pipeline")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with said_aside(), _java():
        found = _import(target, module)
        for name in attribute.split("."):
            if not hasattr(found, name):
                raise NotLoadable(target, f"{module} has no {attribute}")
            found = getattr(found, name)
        # Only now: pyspark takes a while, and what is wrong above is told without it.
        from holdfast.pipeline.pipeline import Pipeline

        made = _call(target, found) if callable(found) and not isinstance(found, Pipeline) else found
    if not isinstance(made, Pipeline):
        returned = "returns" if made is not found else "is"
        raise NotLoadable(target, f"it {returned} a {type(made).__name__}, not a holdfast.Pipeline")
    return made


@contextmanager
def said_aside() -> Iterator[None]:
    """Have all that is printed meanwhile go to stderr, by whichever library or process. Not for two threads at once."""
    with _descriptor_aside(), redirect_stdout(sys.stderr):
        yield


@contextmanager
def _descriptor_aside() -> Iterator[None]:
    """The descriptor itself: a Java that is started inherits that, and Ivy prints there what it has downloaded."""
    # Python has None for what was closed when it began; the descriptor may be any file by now.
    if sys.__stdout__ is None or sys.__stderr__ is None:
        yield
        return
    sys.__stdout__.flush()
    kept = os.dup(OUT)
    os.dup2(ERR, OUT)
    try:
        yield
    finally:
        os.dup2(kept, OUT)
        os.close(kept)


@contextmanager
def _java() -> Iterator[None]:
    """PySpark finds the Java that we find. A module may bring its own: that there is none is told only if it fails."""
    missing = None
    try:
        use_java(least_java(_spark()))
    except JavaMissing as error:
        missing = error
    try:
        yield
    except UserCodeFailed as failed:
        if missing is not None and NO_JAVA in failed.why:
            raise missing from failed
        raise


def _spark() -> Version | None:
    try:
        return parse_version(version("pyspark"))
    except PackageNotFoundError:
        return None


def _import(target: str, module: str) -> object:
    with _blamed_on(target):
        try:
            is_there = find_spec(module) is not None
        except (ModuleNotFoundError, ValueError):
            is_there = False
        if not is_there:
            raise NotLoadable(target, f"there is no module {module}, neither here nor installed")
        return importlib.import_module(module)


def _call(target: str, function: Callable[[], object]) -> object:
    with _blamed_on(target):
        return function()


@contextmanager
def _blamed_on(target: str) -> Iterator[None]:
    try:
        yield
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:  # a module that ends the process would end the verb without a word
        raise UserCodeFailed(target, f"{type(error).__name__}: {error}") from error
