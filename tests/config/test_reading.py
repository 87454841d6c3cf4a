"""holdfast.toml: what it says is taken to the letter, and what it says wrongly is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import read_config, read_repository
from holdfast.decide.retention import KeepPolicy
from holdfast.decide.schedule import Schedule
from holdfast.errors import BadConfig

WHOLE = """
state = "/var/lib/holdfast/state.json"
[repository]
url = "s3://bucket/holdfast"
options = { secret_access_key = "{env:SECRET}" }
[watch]
every = "1m"
[pipelines.orders]
directory = "/data/orders"
every = "10 batches"
code = "jobs.orders:pipeline"
keep = { last = 3, within = "7d" }
[roots.lake]
directory = "s3a://lake/checkpoints"
[keep]
daily = 7
every = "2h"
[check]
read_data = 5
[alerts]
checkpoint_age = "10m"
retention = "2d"
[alerts.to.chat]
webhook = "https://hooks.example.com/{env:SECRET}/x"
headers = { Authorization = "Bearer {file:token}" }
[alerts.to.pager]
command = ["page", "--team", "data"]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SECRET", "hunter2")
    (tmp_path / "token").write_text("t0ken\n")
    return tmp_path / "holdfast.toml"


def test_a_whole_file_is_read_with_what_its_references_stand_for(file: Path) -> None:
    file.write_text(WHOLE)
    config = read_config(file)
    assert config.repository is not None
    assert config.repository.options == {"secret_access_key": "hunter2"}
    orders = config.pipelines["orders"]
    assert (orders.every, config.watch.every) == (Schedule(every_events=10), Schedule(every_ms=60_000))
    assert orders.keep is not None
    assert orders.keep.policy == KeepPolicy(last=3, within_ms=7 * 86_400_000)
    assert config.keep is not None
    assert (config.keep.policy, config.keep.every.ms) == (KeepPolicy(daily=7), 7_200_000)
    assert config.check is not None
    assert (config.check.every.ms, config.check.read_data) == (86_400_000, 5.0)
    chat, pager = config.alerts.to["chat"], config.alerts.to["pager"]
    assert (chat.webhook, chat.headers) == ("https://hooks.example.com/hunter2/x", {"Authorization": "Bearer t0ken"})
    assert (chat.shown, pager.shown) == ("https://hooks.example.com", "page")
    assert config.alerts.rules(orders.checkpoint_age).checkpoint_age_ms == 600_000


def test_an_empty_file_asks_for_nothing(file: Path) -> None:
    file.write_text("")
    config = read_config(file)
    assert (config.repository, config.pipelines, config.keep, config.check, config.alerts.to) == (
        None,
        {},
        None,
        None,
        {},
    )


def test_relative_paths_begin_where_the_file_lies(file: Path) -> None:
    file.write_text(
        'state = "s.json"\n[repository]\nurl = "repo"\nkey_file = "key"\n[pipelines.a]\ndirectory = "s3a://b/a"'
    )
    config = read_config(file)
    assert config.repository is not None
    assert (config.state, config.repository.url) == (str(file.parent / "s.json"), str(file.parent / "repo"))
    assert config.repository.key_file == str(file.parent / "key")
    assert config.pipelines["a"].directory == "s3a://b/a"


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("nonsense", "", "it is no TOML"),
        ("[pipeline.orders]", "pipeline", "did you mean pipelines?"),
        ("[pipelines.orders]\nevry = '30s'", "pipelines.orders.evry", "did you mean every?"),
        ("[pipelines.orders]\nxyzzy = 1", "pipelines.orders.xyzzy", "there are checkpoint_age, code, directory"),
        ("[pipelines.orders]\nevery = 'often'", "pipelines.orders.every", "duration 'often'"),
        ("[pipelines.orders]\nquiet = '0s'", "pipelines.orders.quiet", "more than nothing"),
        ("[pipelines.orders]\nevery = 30", "pipelines.orders.every", "a number and a unit"),
        ("[pipelines.'or/ders']", "pipelines.or/ders", "is no name for a pipeline"),
        ("pipelines = 3", "pipelines", "a table of tables, not a number"),
        ("keep = 'all'", "keep", "it must be a table, not a text"),
        ("[keep]", "keep", "says nothing to keep"),
        ("[keep]\nlast = -1", "keep.last", "expected `int` >= 0"),
        ("[keep]\nlast = '3'", "keep.last", "expected `int`, got `str`"),
        ("[check]\nread_data = 101", "check.read_data", "<= 100"),
        ("[roots.lake]", "roots.lake.directory", "it is missing"),
        ("[alerts.to.chat]", "alerts.to.chat", "exactly one of them"),
        ("[alerts.to.chat]\ncommand = []", "alerts.to.chat", "is empty"),
        ("[alerts.to.chat]\ncommand = ['x']\nheaders = {a = 'b'}", "alerts.to.chat", "go with a webhook"),
        ("[repository]\nurl = 's3://b'\noptions = {k = '{env:NOT_THERE}'}", "repository.options.k", "no NOT_THERE"),
        ("[repository]\nurl = 'r'\nkey_file = 'k'\nkey_command = 'c'", "repository", "give one of them"),
        ("[repository]\nurl = '{file:none}'", "repository.url", "none can't be read: No such file"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(file: Path, text: str, place: str, why: str) -> None:
    file.write_text(text)
    with pytest.raises(BadConfig) as told:
        read_config(file)
    assert (told.value.place, told.value.exit_code) == (place, 2)
    assert why in told.value.why
    assert told.value.message.startswith(f"{file}: ")


@pytest.mark.parametrize("address", ["hooks/{env:SECRET}", "ftp://{env:SECRET}", "https://h:{env:SECRET}/"])
def test_a_webhook_that_is_no_address_is_refused_without_showing_it(file: Path, address: str) -> None:
    file.write_text(f"[alerts.to.chat]\nwebhook = '{address}'")
    with pytest.raises(BadConfig) as told:
        read_config(file)
    assert "hunter2" not in str(told.value)


def test_a_file_that_is_not_there_or_no_text_is_told(file: Path) -> None:
    with pytest.raises(BadConfig, match="No such file"):
        read_config(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadConfig, match="UTF-8"):
        read_config(file)


def test_the_repository_alone_is_read_without_what_the_rest_refers_to(file: Path) -> None:
    file.write_text("[repository]\nurl = 's3://b/x'\n[alerts.to.chat]\nwebhook = '{env:NOT_THERE}'")
    found = read_repository(file)
    assert found is not None
    assert found.url == "s3://b/x"
    file.write_text("[keep]\nlast = 3")
    assert read_repository(file) is None
