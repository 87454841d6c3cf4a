"""What of a query's Python code counts: its functions by name, what they reach, and nothing of libraries."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from holdfast.decide.query_identity import PythonCode
from holdfast.pipeline.code import read_code

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Write a module of a user's and import it; each time another one, from another folder."""
    loaded: list[str] = []

    def load(text: str) -> ModuleType:
        folder = tmp_path / f"at-{len(loaded)}"
        folder.mkdir()
        name = "queries_of_a_user"
        (folder / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        monkeypatch.syspath_prepend(str(folder))
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        loaded.append(name)
        return importlib.import_module(name)

    yield load
    for name in loaded:
        sys.modules.pop(name, None)


PLAIN = """
    import json

    LIMIT = 5

    def clean(value):
        return json.dumps(value)[:LIMIT]

    def other(value):
        return value

    def query(events):
        return clean(events), other(events)
    """


def code(load: Load, text: str) -> PythonCode:
    return read_code(load(text).query)


def test_the_same_code_in_another_folder_gives_the_same_digests(load: Load) -> None:
    commented = PLAIN.replace("return value", "return value  # as it is")
    assert code(load, PLAIN) == code(load, commented)


def test_another_body_changes_the_digest_of_that_function_alone(load: Load) -> None:
    before, after = code(load, PLAIN), code(load, PLAIN.replace("return value", "return -value"))
    assert before.of("other") != after.of("other")
    assert before.of("clean") == after.of("clean")
    assert before.everything != after.everything


def test_a_constant_that_a_function_reads_is_part_of_it(load: Load) -> None:
    before, after = code(load, PLAIN), code(load, PLAIN.replace("LIMIT = 5", "LIMIT = 6"))
    assert before.of("clean") != after.of("clean")
    assert before.of("other") == after.of("other")


def test_a_helper_that_a_function_calls_is_part_of_it(load: Load) -> None:
    text = PLAIN.replace("json.dumps(value)", "helper(value)") + "\n    def helper(value): return value * 2\n"
    assert code(load, text).of("clean") != code(load, text.replace("* 2", "* 3")).of("clean")


def test_a_new_password_is_no_new_code(load: Load) -> None:
    text = PLAIN.replace("[:LIMIT]", "[:LIMIT] + PASSWORD").replace("LIMIT = 5", "LIMIT = 5\n    PASSWORD = 'one'")
    assert code(load, text) == code(load, text.replace("'one'", "'two'"))


NESTED = """
    def make(factor):
        def scale(value):
            return value * factor
        return scale

    def query(events):
        return make(2)(events)
    """


def test_a_function_made_within_another_is_told_by_everything(load: Load) -> None:
    """What it closes over is known only once the query runs: a change of anything may be a change of it."""
    before, after = code(load, NESTED), code(load, NESTED.replace("make(2)", "make(3)"))
    assert before.of("scale") != after.of("scale")


def test_a_name_that_is_also_one_of_an_inner_function_is_told_by_everything(load: Load) -> None:
    """The plan says only the name: which of the two runs there can't be known."""
    text = NESTED.replace("return make(2)(events)", "return make(2)(events), scale(events)")
    text += "\n    def scale(value):\n        return value\n"
    assert code(load, text).of("scale") != code(load, text.replace("make(2)", "make(3)")).of("scale")


def test_the_query_itself_is_told_by_its_plan_and_not_by_its_source(load: Load) -> None:
    after = code(load, PLAIN.replace("return clean(events), other(events)", "return other(events), clean(events)"))
    assert code(load, PLAIN).functions == after.functions


PROCESSOR = """
    from pyspark.sql.streaming import StatefulProcessor

    class Tally(StatefulProcessor):
        def __init__(self, most=3):
            self.most = most

        def init(self, handle):
            self.sums = handle.getValueState("sums", "n LONG", None)
            self.seen = handle.getMapState("seen", "value LONG", "times LONG")

        def handleInputRows(self, key, rows, timerValues):
            yield 1

    def query(events):
        return events.transform(Tally())
    """


def test_a_processor_tells_its_state_variables(load: Load) -> None:
    assert code(load, PROCESSOR).variables == ("sums: value of n LONG, None", "seen: map of value LONG, times LONG")


@pytest.mark.parametrize(
    ("old", "new"), [("yield 1", "yield 2"), ("Tally()", "Tally(4)"), ("Tally()", "Tally(most=len(events))")]
)
def test_a_processor_is_told_by_its_methods_and_by_what_it_is_made_with(load: Load, old: str, new: str) -> None:
    assert code(load, PROCESSOR).processors != code(load, PROCESSOR.replace(old, new)).processors


def test_what_follows_a_processor_is_no_part_of_it(load: Load) -> None:
    after = PROCESSOR.replace("transform(Tally())", "transform(Tally()).where('n > 1')")
    assert code(load, PROCESSOR).processors == code(load, after).processors


def test_libraries_are_left_out(load: Load) -> None:
    assert set(code(load, PLAIN).functions) == {"clean", "other"}


def test_a_user_defined_function_is_the_python_function_inside(load: Load) -> None:
    text = """
    from pyspark.sql.functions import udf
    from pyspark.sql.types import LongType

    @udf(LongType())
    def double(value):
        return value * 2

    def query(events):
        return double("value")
    """
    assert set(code(load, text).functions) == {"double"}
    assert code(load, text).of("double") != code(load, text.replace("* 2", "* 3")).of("double")
