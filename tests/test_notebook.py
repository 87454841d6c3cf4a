"""What repositories, pipelines and checkpoints show of themselves in a notebook."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest

from builders import filled, flip, look, make_repo, manifest_key
from dashboard.sample import HOSTILE, make_fleet, make_hostile
from holdfast.layout import Slot
from holdfast.notebook import facts, table
from holdfast.store import Store

NOW = time.time_ns() // 1_000_000


class Reader(HTMLParser):
    """Collects tags and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_repository_is_a_table_of_its_pipelines(memory_store: Store) -> None:
    shown = Reader(make_fleet(memory_store, NOW)._repr_html_())
    assert {"orders", "3-29", "73", "none yet"} <= set(shown.texts)
    assert any("do not match its digest" in text for text in shown.texts)


def test_a_pipeline_is_a_table_of_its_newest_checkpoints(memory_store: Store) -> None:
    shown = Reader(make_fleet(memory_store, NOW).pipeline("orders")._repr_html_())
    assert {"3-29", "3-10", "nightly-audit", "54 older ones are not shown."} <= set(shown.texts)
    assert "3-9" not in shown.texts


def test_a_checkpoint_is_a_table_of_what_it_holds(memory_store: Store) -> None:
    newest = make_fleet(memory_store, NOW).pipeline("orders").latest()
    assert newest is not None
    shown = Reader(newest._repr_html_())
    assert {"customers, orders", "dedup by order id (24), window by hour (24)", "counts"} <= set(shown.texts)


def test_damage_is_told_and_never_raised(memory_store: Store) -> None:
    repo = filled(3, memory_store)
    newest = look(repo).latest()
    assert newest is not None
    flip(memory_store, manifest_key(Slot(0, 2)), 40)
    for shown in (repo, look(repo), look(repo)["slot:0-2"]):
        assert "do not match" in shown._repr_html_()
    memory_store.delete([look(repo).records.keys.identity])
    assert "pipeline.json is gone" in look(repo)._repr_html_()


def test_what_is_empty_or_not_there_is_shown_as_that(memory_store: Store) -> None:
    repo = make_repo(memory_store)
    assert "<tbody></tbody>" in repo._repr_html_()
    assert "<tbody></tbody>" in look(repo)._repr_html_()


def test_hostile_texts_stay_texts(memory_store: Store) -> None:
    repo = make_hostile(memory_store, NOW)
    newest = repo.pipeline("orders").latest()
    assert newest is not None
    for html in (repo._repr_html_(), repo.pipeline("orders")._repr_html_(), newest._repr_html_()):
        shown = Reader(html)
        assert shown.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p", "small"}
        assert shown.attributes == []
    assert any("<script>window.hacked=1</script>" in text for text in Reader(newest._repr_html_()).texts)


@pytest.mark.parametrize(
    "html", [table(HOSTILE, [HOSTILE], [[HOSTILE]], HOSTILE), facts(HOSTILE, [(HOSTILE, HOSTILE)])]
)
def test_every_text_of_a_table_is_escaped(html: str) -> None:
    assert "<script" not in html
    assert '"onload' not in html
    assert "\u202e" not in html
