"""No block of any page is passed over: Python is run, commands are read by the command line itself, data is parsed."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml

from holdfast import errors
from holdfast.cli.failures import USAGE_CODE
from holdfast.dashboard.metrics import Figures
from holdfast.pipeline.metrics import Metrics
from pages.blocks import PAGES, ROOT, Block, Page, known_options, parse_command
from pages.playing import ELSEWHERE, NOT_TYPED, ONLY_READ, differs
from pages.stages import STAGES

BLOCKS = [block for page in PAGES for block in page.blocks]
WITH_COMMANDS = [block for block in BLOCKS if block.commands]
BESIDE = {"echo", "export", "make", "pip", "python3", "rm", "spark-submit"}
"""What else a page may have its reader type."""


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def look_at(block: Block) -> bool:
    """Whether some test here, or the stage of its page, takes care of it."""
    match block.language:
        case "python" | "toml":
            return block.page in STAGES or block.page in ELSEWHERE
        case "bash" | "console":
            return bool(block.commands) and (block.page in STAGES or block.page in ONLY_READ)
        case "text" | "":
            return not block.commands or block.page in STAGES or block.page in ONLY_READ
        case "yaml" | "json" | "sql" | "dockerfile":
            return True
    return False


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_is_looked_at(block: Block) -> None:
    assert look_at(block), "give its page a stage in pages/stages.py, or its language a test here"


def test_every_stage_has_its_page() -> None:
    assert set(STAGES) <= {page.name for page in PAGES}


def test_what_is_not_typed_is_on_its_page() -> None:
    for page, begin in NOT_TYPED:
        commands = [each.text for block in BLOCKS if block.page == page for each in block.commands]
        assert any(text.startswith(begin) for text in commands), (page, begin)


SAID = ["a 1", "b", "", "c", "d"]


@pytest.mark.parametrize(
    ("shown", "differs_at"),
    [
        (["a 2", "b", "c", "d"], None),
        (["…", "c", "d"], None),
        (["a 1", "…"], None),
        (["a 1", "…", "c", "d"], None),
        (["…", "b", "…"], None),
        (["a …", "b", "c", "d"], None),
        (["a 1", "b …"], None),
        (["a 1", "c", "d"], "c"),
        (["a 1", "b", "d"], "d"),
        (["b", "c", "d"], "b"),
        (["a 1", "b"], "(nothing, where it said) c"),
        (["…", "c"], "c"),
        (["…", "e"], "e"),
        (["…", "b", "d", "…"], "b"),
    ],
)
def test_a_line_that_was_said_and_is_not_shown_is_found_unless_it_is_marked(
    shown: list[str], differs_at: str | None
) -> None:
    assert differs(shown, SAID) == differs_at


def test_of_what_goes_on_only_the_beginning_is_compared() -> None:
    assert differs(["a 1", "b"], SAID, ended=False) is None
    assert differs(["b"], SAID, ended=False) == "b"


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_a_page_that_is_run_elsewhere_is_named_there(page: str, test: str) -> None:
    assert page.rpartition("/")[2] in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("block", WITH_COMMANDS, ids=str)
def test_commands_are_such_as_the_command_line_takes(block: Block) -> None:
    for command in block.commands:
        program = command.words[0]
        if program != "holdfast":
            assert program in BESIDE, command.text
            continue
        try:
            parse_command(command.words if ">" not in command.words else command.words[: command.words.index(">")])
        except click.UsageError as error:
            pytest.fail(f"{command.text}: {error.format_message()}")


def test_the_readme_shows_the_end_of_a_test_run_as_it_is_printed() -> None:
    [shown] = [
        c.shown for block in BLOCKS for c in block.commands if (block.page, c.text) == ("README.md", "make test")
    ]
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    result = [line for line in shown if line.startswith(("left out", *"0123456789"))]
    assert re.fullmatch(r"\d+ passed, 0 failed, 0 error, 0 skipped", result[0])
    meant = [": ".join(re.fullmatch(r"left out: \d+ marked (\w+), (.*)", line).groups()) for line in result[1:]]  # type: ignore[union-attr]
    assert meant == [line for line in sorted(markers) if not line.startswith("matrix")]


@pytest.mark.parametrize("block", of("bash"), ids=str)
def test_scripts_are_such_as_a_shell_takes(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.code, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language in ("", "text")], ids=str)
def test_what_is_only_shown_holds_no_commands_that_nobody_reads(block: Block) -> None:
    if not block.commands:
        assert not re.search(r"^(\$ |holdfast )", block.code, re.MULTILINE)


# ---- data ----


def documents(block: Block) -> list[Any]:
    return list(yaml.safe_load_all(block.code))


def each(value: Any, key: str) -> Iterator[Any]:
    """All values under a key, however deep."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == key:
                yield inner
            yield from each(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from each(inner, key)


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_yaml_parses_and_containers_are_given_commands_that_there_are(block: Block) -> None:
    parsed = documents(block)
    assert all(parsed)
    for container in each(parsed, "containers"):
        for one in container:
            parse_command(["holdfast", *map(str, one["args"])])


def metric_names() -> set[str]:
    """As Prometheus sees them."""
    found = set()
    for family in [*Metrics("any").registry.collect(), *Figures([], 0).collect()]:
        # A counter without a label has no sample yet.
        found |= {family.name, *(sample.name for sample in family.samples)}
        found |= {f"{family.name}_total"} if family.type == "counter" else set()
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_metrics_that_are_named_exist(page: Page) -> None:
    named = set(re.findall(r"\bholdfast_[a-z_]+\b", page.text))
    assert named <= metric_names()


def test_every_metric_stands_on_the_page_of_operations() -> None:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    families = {family.name for family in Metrics("any").registry.collect()}
    assert {name for name in families if name not in text} == set()


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_json_parses(block: Block) -> None:
    assert json.loads(block.code)


def test_the_policy_allows_just_what_the_table_above_it_names() -> None:
    page = next(page for page in PAGES if page.name == "docs/operations.md")
    policy = json.loads(page.of("json")[0].code)
    allowed = {
        action for actions in each(policy, "Action") for action in ([actions] if isinstance(actions, str) else actions)
    }
    assert allowed == set(re.findall(r"`(s3:\w+)`", page.text.partition("## Permissions")[2].partition("```json")[0]))


@pytest.mark.parametrize("block", of("sql"), ids=str)
def test_sql_names_settings_that_the_sinks_look_at(block: Block) -> None:
    settings = re.findall(r"'(delta\.\w+)'", block.code)
    source = (ROOT / "src/holdfast/sinks/delta.py").read_text() + (ROOT / "src/holdfast/sinks/delta_log.py").read_text()
    assert all(setting in source for setting in settings)
    assert settings or block.page in STAGES  # the others are run


@pytest.mark.parametrize("block", of("dockerfile"), ids=str)
def test_images_are_made_of_our_wheel(block: Block) -> None:
    words = [line.split()[0] for line in block.code.splitlines()]
    assert words[0] == "FROM"
    assert set(words) <= {"FROM", "COPY", "RUN", "USER", "ENTRYPOINT"}
    assert "dist/holdfast-*.whl" in block.code


def test_benchmarks_are_shown_below_the_name_of_the_program_that_prints_them() -> None:
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        if "```" in section:
            assert (ROOT / "benchmarks" / f"{section.partition(':')[0]}.py").exists(), section[:40]


# ---- words ----


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_codes_in_the_text_exist(page: Page) -> None:
    for said in re.findall(r"`holdfast ([^`]+)`", page.prose):
        verb, *words = said.split()
        if verb.isupper() or not verb.isalpha():
            continue  # VERB
        options = {word.partition("=")[0] for word in words if re.match(r"-{1,2}[a-z]", word)}
        assert options <= known_options(verb), said
    codes = {getattr(errors, name).code for name in errors.__all__ if hasattr(getattr(errors, name), "code")}
    assert set(re.findall(r"HF-\d{4}", page.text)) <= codes | {USAGE_CODE}


def anchors(page: str) -> set[str]:
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    here = (ROOT / page.name).parent
    for link in re.findall(r"\]\(([^)\s]+)\)", page.prose):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (here / path).resolve() if path else ROOT / page.name
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.relative_to(ROOT).as_posix()), link


def test_every_page_is_reached_from_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = {page.name.removeprefix("docs/") for page in PAGES if page.name.startswith("docs/")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index and f"({page}#" not in index} == set()
