from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys
from dataclasses import fields

import pytest

from holdfast import errors
from holdfast.errors import HoldfastError

EXIT_CODES = {"Damage": 3, "NotFound": 4, "LostRace": 5, "Refused": 6, "BadInput": 2}


def every_error() -> list[type[HoldfastError]]:
    classes = (value for _, value in inspect.getmembers(errors, inspect.isclass))
    return sorted((c for c in classes if issubclass(c, HoldfastError)), key=lambda c: c.__name__)


def leaves() -> list[type[HoldfastError]]:
    return [error for error in every_error() if "code" in vars(error) and error is not HoldfastError]


def example(error: type[HoldfastError]) -> HoldfastError:
    values: dict[str, object] = {"seconds": 12.5, "generation": 7, "partition": 3, "known": ["a", "b"]}
    return error(*(values.get(field.name, f"some {field.name}") for field in fields(error)))


def test_every_code_is_unique_and_well_formed() -> None:
    codes = [error.code for error in leaves()]
    assert len(codes) == len(set(codes)) > 30
    assert all(re.fullmatch(r"HF-\d{4}", code) for code in codes)


def test_every_public_error_is_exported() -> None:
    assert {error.__name__ for error in every_error()} == set(errors.__all__)


@pytest.mark.parametrize("error", every_error(), ids=lambda e: e.__name__)
def test_the_tree_in_the_docstring_shows_every_error_below_its_parent(error: type[HoldfastError]) -> None:
    assert errors.__doc__ is not None
    words = [re.search(r"\w+", line) for line in errors.__doc__.splitlines()]
    tree = [(word.start(), word[0]) for word in words if word]
    names = [name for _, name in tree]
    assert names.count(error.__name__) == 1
    if error is HoldfastError:
        return
    depth, above = {name: at for at, name in tree}, tree[: names.index(error.__name__)]
    parent = next(name for at, name in reversed(above) if at < depth[error.__name__])
    assert parent == error.__bases__[0].__name__


@pytest.mark.parametrize("error", leaves(), ids=lambda e: e.__name__)
def test_the_tree_in_the_docstring_gives_the_code(error: type[HoldfastError]) -> None:
    assert re.search(rf"\b{error.__name__} +{error.code}\b", errors.__doc__ or "")


@pytest.mark.parametrize("error", leaves(), ids=lambda e: e.__name__)
def test_message_and_hint_are_filled_from_the_fields(error: type[HoldfastError]) -> None:
    raised = example(error)
    assert str(raised) == f"{raised.message} [{error.code}]"
    assert "{" not in raised.message + raised.hint
    in_message = [name for name in raised.fields if "{" + name in error.template]
    assert in_message, "a message that says nothing of its fields"
    for name in in_message:
        value = raised.fields[name]
        shown = value if isinstance(value, list) else ["12" if name == "seconds" else str(value)]
        assert all(part in raised.message for part in shown)


def test_whoever_wants_a_reserved_name_is_told_which_ones_are() -> None:
    hint = errors.BadName("savepoint", "now").hint
    assert "now and latest are reserved" in hint


def test_most_errors_say_what_to_do() -> None:
    assert {error.__name__ for error in leaves() if not error.advice} <= {"ObjectMissing", "BadValue"}


@pytest.mark.parametrize("error", leaves(), ids=lambda e: e.__name__)
def test_the_exit_code_follows_the_branch_of_the_tree(error: type[HoldfastError]) -> None:
    branch = [EXIT_CODES[base.__name__] for base in error.__mro__ if base.__name__ in EXIT_CODES]
    assert error.exit_code == (branch[0] if branch else 1)


def test_every_error_survives_the_way_to_another_process() -> None:
    raised = [example(error) for error in leaves()]
    script = (
        "import pickle, sys\n"
        "seen = pickle.load(sys.stdin.buffer)\n"
        "pickle.dump([(type(e).__name__, str(e), e.hint, e.fields, e.exit_code) for e in seen], sys.stdout.buffer)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(raised), capture_output=True, check=True)
    assert pickle.loads(done.stdout) == [(type(e).__name__, str(e), e.hint, e.fields, e.exit_code) for e in raised]


def test_an_error_made_with_keywords_survives_pickling_with_its_fields() -> None:
    raised = errors.Fenced(pipeline="orders", generation=3, by="generation 4 was claimed")
    again = pickle.loads(pickle.dumps(raised))
    assert again.fields == {"pipeline": "orders", "generation": 3, "by": "generation 4 was claimed"}


def test_two_errors_are_never_equal_and_can_be_kept_in_sets() -> None:
    assert len({example(errors.Fenced), example(errors.Fenced)}) == 2
