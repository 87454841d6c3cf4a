"""What the pages say. How they look is for tests/dashboard/test_browser.py."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from builders import make_repo
from dashboard.conftest import Client, Serving
from dashboard.sample import HOSTILE, Writer
from holdfast.dashboard.fleet import Rules
from holdfast.errors import StoreUnavailable
from holdfast.layout import Slot
from holdfast.store import open_store
from holdfast.testing.faults import Around

PAGES = ["/", "/pipelines/orders", "/pipelines/orders?which=savepoints", "/pipelines/orders/checkpoints/0-2"]
PAGES += ["/pipelines/orders/checkpoints/0-2/diff", "/pipelines/orders/prune?keep_last=2", "/login"]


def words(html: str) -> str:
    """The text of a page, without its tags."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_the_overview_has_every_pipeline_the_worst_first(fleet: Client) -> None:
    text = fleet.get("/").text
    names = re.findall(r'class="name" href="/pipelines/([^"]+)"', text)
    assert names == ["inventory", "shipments", "payments", "returns", "clicks", "orders", "orders-backfill"]


def test_what_is_wrong_comes_with_the_command_that_helps(fleet: Client) -> None:
    text = words(fleet.get("/").text)
    assert "holdfast check inventory --read-data --repo memory://" in text
    assert "generation 1 was claimed and never began" in text
    assert "the last checkpoint is 3 h old, its usual interval is 1 min" in text


def test_pipelines_are_found_by_name_and_by_health(fleet: Client) -> None:
    assert re.findall(r'class="name" href="/pipelines/([^"]+)"', fleet.get("/?q=ORDERS").text) == [
        "orders",
        "orders-backfill",
    ]
    assert re.findall(r'class="name" href="/pipelines/([^"]+)"', fleet.get("/?status=late").text) == ["payments"]
    assert "No pipeline fits." in fleet.get("/?q=nothing-like-it").text


def test_an_age_that_is_allowed_makes_others_late(serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=1)
    it.claim(0)
    it.hint(it.run(0, range(3), 1_000, 30_000))
    with serving(repository, rules=Rules(max_age_ms=10_000)) as client:
        assert client.get("/api/pipelines/orders").document["health"]["status"] == "late"


def test_a_pipeline_shows_its_checkpoints_sources_sinks_and_history(fleet: Client) -> None:
    page = fleet.get("/pipelines/orders").text
    text = words(page)
    for expected in (
        "checkpoints arrive as usual",
        "lake.orders_by_hour committed 73 version 1273",
        "rewind to before-upgrade",
        "nightly-audit",
        "pin: audit",
        "orders:5 57525",
        "forked into orders-backfill",
    ):
        assert expected in text
    assert page.count('class="column') == 60
    assert 'class="strand off"' in page


def test_abandoned_checkpoints_are_a_click_away(fleet: Client) -> None:
    page = fleet.get("/pipelines/orders?which=abandoned").text
    assert page.count('class="column') == 12
    assert "/pipelines/orders/checkpoints/1-21" in page


def test_older_checkpoints_are_on_the_next_page(fleet: Client) -> None:
    page = fleet.get("/pipelines/orders?page=1").text
    assert page.count('class="column') == 14
    assert 'href="/pipelines/orders/checkpoints/0-0"' in page


def test_damage_is_marked_where_it_is(fleet: Client) -> None:
    page = fleet.get("/pipelines/inventory").text
    assert page.count('class="column bad"') == 2
    assert "its bytes do not match its digest" in page


def test_a_checkpoint_shows_what_it_holds_and_how_to_bring_it_back(fleet: Client) -> None:
    page = fleet.get("/pipelines/clicks/checkpoints/0-39").text
    text = words(page)
    assert "holdfast restore clicks@slot:0-39 ./clicks-restored --repo memory://" in text
    assert page.count('<li class="heat-') == 200
    assert "partition 5: " in text
    assert 'href="/pipelines/clicks/checkpoints/0-38"' in page


def test_an_abandoned_checkpoint_says_so(fleet: Client) -> None:
    assert "abandoned" in fleet.get("/pipelines/orders/checkpoints/1-20").text


def test_two_checkpoints_side_by_side(fleet: Client) -> None:
    text = words(fleet.get("/pipelines/orders/checkpoints/3-5/diff?with=before-upgrade").text)
    assert "orders 1-9 → 3-5" in text
    assert "+22" in text
    assert "Source orders (+17,160 in all)" in text


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/nope", 404, "Not Found"),
        ("/pipelines/nope", 404, "HF-3003"),
        ("/pipelines/..%2f..%2fetc", 404, ""),
        ("/pipelines/%3Cscript%3E", 400, "HF-6001"),
        ("/pipelines/orders/checkpoints/9-9", 404, "HF-3004"),
        ("/pipelines/orders/checkpoints/x", 400, "HF-6001"),
        ("/pipelines/orders/checkpoints/3-5/diff?with=nothing-like-it", 404, "HF-3004"),
        ("/pipelines/orders?page=x", 400, "HF-6004"),
        ("/jobs/nope", 404, "job nope"),
        ("/static/..%2fguard.py", 404, ""),
    ],
)
def test_what_is_not_there_is_told_and_not_shown(fleet: Client, path: str, status: int, said: str) -> None:
    answer = fleet.get(path)
    assert answer.status == status
    assert said in answer.text
    assert "<script>" not in answer.text.replace('<script src="', "")


def test_a_lost_record_of_a_pipeline_is_told_on_its_page(serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=1)
    it.claim(0)
    it.hint(it.run(0, range(5), 1_000, 1_000))
    repository.store.delete([it.keys.identity])
    with serving(repository) as client:
        answer = client.get("/pipelines/orders")
        assert answer.status == 200
        assert "pipeline.json is gone" in answer.text
        assert "damaged" in client.get("/").text


def test_a_gap_in_the_records_is_told_on_its_page(serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=1)
    it.claim(0)
    it.hint(it.run(0, range(5), 1_000, 1_000))
    repository.store.delete([it.keys.manifest(Slot(0, 2))])
    with serving(repository) as client:
        assert "the manifest of 0-2" in client.get("/pipelines/orders").text


def test_a_store_that_fails_is_told_and_is_no_damage(serving: Serving) -> None:
    class Failing(Around):
        fails = False

        def _around(self, verb: str, act: Any) -> Any:
            if self.fails:
                raise StoreUnavailable(self.url, verb, 60, "connection refused")
            return act()

    store = Failing(open_store("memory://"))
    repository = make_repo(store)
    with serving(repository) as client:
        store.fails = True
        answer = client.get("/")
        assert answer.status == 503
        assert "connection refused" in answer.text
        assert client.get("/api/pipelines").document["error"]["code"] == "HF-1001"
        assert client.get("/healthz").status == 200
        store.fails = False
        time.sleep(0.1)
        assert client.get("/").status == 200


def test_an_empty_repository_says_how_to_begin(serving: Serving) -> None:
    with serving(make_repo(open_store("memory://"))) as client:
        assert "holdfast capture" in client.get("/").text


@pytest.mark.parametrize("path", PAGES)
def test_hostile_texts_are_shown_as_text_and_never_as_markup(hostile: Client, path: str) -> None:
    hostile.sign_in()
    page = hostile.get(path).text
    assert "<script>window" not in page
    assert 'onload="window' not in page
    assert "\u202e" not in page
    if path not in ("/", "/login", "/pipelines/orders/prune?keep_last=2"):
        assert "&lt;script&gt;window.hacked=1&lt;/script&gt;&#34;onload=&#34;" in page
        assert "{{7*7}}" in page


def test_the_api_gives_hostile_texts_as_they_are_and_as_json(hostile: Client) -> None:
    answer = hostile.get("/api/pipelines/orders")
    assert answer.headers["content-type"] == "application/json"
    assert answer.document["seen"]["identifier"] == HOSTILE


def test_files_of_the_page_may_be_kept_for_good(fleet: Client) -> None:
    for where in re.findall(r'(?:src|href)="(/static/[^"]+)"', fleet.get("/").text):
        answer = fleet.get(where)
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]


def test_no_page_asks_for_anything_from_elsewhere(fleet: Client) -> None:
    for path in PAGES:
        assert not re.findall(r'(?:src|href|action)="(?!/|\?|#)[^"]*"', fleet.get(path).text)
