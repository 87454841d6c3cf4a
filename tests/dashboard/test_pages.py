"""What the pages say. How they look is for tests/dashboard/test_browser.py."""

from __future__ import annotations

import re
import time
from contextlib import closing
from typing import Any

import pytest
from markupsafe import escape

from builders import make_repo
from dashboard.conftest import TOKEN, Client, Serving
from dashboard.sample import HOSTILE, HOSTILE_KEY, Writer
from holdfast.dashboard.fleet import Fleet, Rules
from holdfast.errors import StoreUnavailable
from holdfast.layout import Slot
from holdfast.manifest import ConnectorOffset
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
    assert "holdfast watch s3a://lake/checkpoints/payments -p payments --every 60s --repo memory://" in text


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
        "forked into orders-backfill at 1-9",
    ):
        assert expected in text
    assert page.count('class="column') == 60
    assert 'class="strand off"' in page


def test_a_page_of_an_abandoned_branch_tells_of_that_branch_alone(fleet: Client) -> None:
    text = words(fleet.get("/pipelines/orders?which=abandoned").text)
    assert "Sources and watermark at 1-21, the last that was abandoned" in text
    assert "Sinks at 1-21, the last that was abandoned" in text
    assert "lake.orders_by_hour committed 39 version 1239" in text
    assert "version 1273" not in text


def test_older_checkpoints_stand_beside_their_own_sources_and_sinks(fleet: Client) -> None:
    text = words(fleet.get("/pipelines/orders?page=1").text)
    assert "Sinks at 0-13, the last of this page" in text
    assert "lake.orders_by_hour committed 13 version 1213" in text


def test_where_the_newest_is_damaged_the_last_that_can_be_read_is_told(fleet: Client) -> None:
    text = words(fleet.get("/pipelines/inventory").text)
    assert "Sinks at 0-12, the last that can be read" in text
    assert re.search(r"Last checkpoint \S+ \S+ 0-12 , the last that can be read", text)
    assert "of the watermark, at 0-12" in text
    assert "Epoch 12 of 0-12" in text


def test_lag_is_said_to_be_that_of_a_checkpoint_and_not_of_now(fleet: Client) -> None:
    assert "of the watermark, at the newest checkpoint" in words(fleet.get("/pipelines/payments").text)
    overview = fleet.get("/").text
    assert re.search(r'title="[^"]*at the newest checkpoint, not now">Lag at checkpoint</th>', overview)
    assert 'data-label="Lag at checkpoint"' in overview
    described = fleet.get("/openapi.json").document["components"]["schemas"]["Glance"]["description"]
    assert "when the checkpoint was taken, not how far it is now" in " ".join(described.split())


def test_generations_that_are_left_out_are_counted(serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=1)
    for count, said in ((24, ""), (25, "1 older one is left out here"), (30, "6 older ones are left out here")):
        for generation in range(count):
            it.claim(generation)
        with serving(repository) as client:
            text = words(client.get("/pipelines/orders").text)
            assert text.partition("left out")[1] == ("left out" if said else "")
            assert not said or f"{said}: holdfast show orders --generations --repo memory://" in text


def test_offsets_that_are_left_out_are_counted(serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=1)
    it.claim(0)
    for number, partitions in enumerate((400, 430)):
        offsets = ConnectorOffset(offsets={f"orders:{n}": "7" for n in range(partitions)}, metadata={"topic": "orders"})
        it.checkpoint(Slot(0, number), number, 1_000, source_offsets={"orders": offsets})
    with serving(repository) as client:
        assert "left out" not in client.get("/pipelines/orders/checkpoints/0-0").text
        text = words(client.get("/pipelines/orders/checkpoints/0-1").text)
    assert "30 more offsets left out here: holdfast show orders@slot:0-1 --json" in text
    assert "(topic) orders" in text


def test_checkpoints_of_one_minute_have_ticks_with_seconds(serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    noon = 1_800_000_000_000 // 86_400_000 * 86_400_000 + 43_200_000
    for name, every_ms in (("fast", 2_000), ("slow", 60_000)):
        it = Writer(repository, name, noon, partitions=1)
        it.claim(0)
        it.hint(it.run(0, range(14), every_ms, 1_000))
    with serving(repository) as client:
        shown = {
            name: re.findall(r'class="tick"[^>]*>([^<]*)<', client.get(f"/pipelines/{name}").text)
            for name in ("fast", "slow")
        }
    assert shown["fast"] == [f"11:59:{second}" for second in (59, 55, 51, 47, 43, 39, 35)]
    assert shown["slow"] == [f"11:{minute}" for minute in (59, 57, 55, 53, 51, 49, 47)]


def test_lines_say_from_when_to_when_and_between_which_values_they_run(fleet: Client) -> None:
    page = fleet.get("/pipelines/clicks").text
    _, *ends = re.findall(r'<p class="ends">(.*?)</p>', page)
    first, last = re.findall(r'<time datetime="[^"]*">([^<]*)</time>', page.partition("</svg>")[2])[:2]
    assert len(ends) == 2
    for each in ends:
        assert re.findall(r'<time [^>]* title="([^"]*)">', each) == [first, last]
        assert re.findall(r">([^<]*)</time>", each)[1].endswith(last[11:16])
    assert (
        f"{sum(48_000 + n * 7 for n in range(6)):,} to {sum(48_000 + 39 * 130 + n * 7 for n in range(6)):,}" in ends[1]
    )


def test_the_newest_checkpoint_has_a_mark_of_its_own_on_the_tree_and_in_the_legend(fleet: Client) -> None:
    drawn = fleet.get("/pipelines/orders").text.partition("Tree of generations")[2]
    shapes = {
        kind: re.sub(r"M[\d. ]+", "", path)
        for kind, path in re.findall(r'<a class="tree-(\w+)".*?<path d="([^"]*)"', drawn, re.DOTALL)
    }
    assert len(set(shapes.values())) == len(shapes) == 3
    assert 'class="key key-newest">newest<' in drawn.partition("</svg>")[2].partition("</figcaption>")[0]


def test_whoever_may_only_read_is_told_how_to_get_a_token_that_they_know(serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    Writer(repository, "orders", time.time_ns() // 1_000_000).claim(0)
    with serving(repository) as client:
        boxes = re.findall(r'data-copy="([^"]*)"', client.get("/pipelines/orders").text)
    assert boxes[-2:] == [
        "export HOLDFAST_DASHBOARD_TOKEN=$(openssl rand -hex 16); echo $HOLDFAST_DASHBOARD_TOKEN",
        "holdfast dashboard --repo memory://",
    ]


def test_a_loop_with_sinks_is_brought_back_by_its_own_program(fleet: Client) -> None:
    page = fleet.get("/pipelines/orders/checkpoints/3-12").text
    assert 'data-copy="recover(&#34;orders&#34;, to=&#34;slot:3-12&#34;)"' in page
    assert "the sinks stay where they are" in page


def test_forks_are_linked_both_ways_at_the_checkpoint_where_they_left(fleet: Client) -> None:
    parent, fork = fleet.get("/pipelines/orders").text, fleet.get("/pipelines/orders-backfill").text
    assert re.search(
        r'<a class="tree-fork" href="/pipelines/orders-backfill" aria-label="[^"]*forked from 1-9"', parent
    )
    assert 'began as a fork of <a href="/pipelines/orders">orders</a>' in fork
    assert 'at <a href="/pipelines/orders/checkpoints/1-9">1-9</a>' in fork
    assert "g0 fork of orders@1-9" in fork


def test_a_fork_of_what_is_not_here_is_told_and_not_linked(serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "copied", time.time_ns() // 1_000_000, partitions=1)
    it.claim(0, "fork", origin="fork of elsewhere@slot:1-9")
    it.hint(it.run(0, range(3), 1_000, 1_000))
    with serving(repository) as client:
        page = client.get("/pipelines/copied").text
        assert "origin: fork of elsewhere@slot:1-9" in page
        assert 'href="/pipelines/elsewhere' not in page


def test_the_tree_and_the_plot_say_why_each_generation_began(fleet: Client) -> None:
    page = fleet.get("/pipelines/orders").text
    for tag in ("tree", "timeline"):
        drawn = page.partition("Tree of generations" if tag == "tree" else "Checkpoints over time")[2]
        shown = re.findall(r"<text[^>]*>(g\d[^<]*)</text>", drawn.partition("</svg>")[0])
        assert (
            shown
            == {
                "tree": ["g0 start", "g1 start", "g1 abandoned", "g2 rewind", "g3 start"],
                "timeline": ["g0", "g1 start", "g2 rewind", "g3 start"],
            }[tag]
        )
    assert "generation 2: rewind to before-upgrade, at 1-9, by ann@laptop" in page


def test_the_plot_says_when_its_columns_were_taken(fleet: Client) -> None:
    page = fleet.get("/pipelines/clicks").text
    last = re.findall(r'<time datetime="[^"]*">([^<]*)</time>', page.partition("</svg>")[2])[1]
    words = re.findall(r'class="tick"[^>]*>([^<]*)<', page)
    assert 3 <= len(words) <= 7
    assert words[0].endswith(last[11:16])


def test_what_is_older_is_to_the_left_as_in_the_plot_and_lists_have_a_previous_and_a_next(
    fleet: Client, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    pager = r"<(?:a|span) class=\"button[^>]*>(Older|Newer|Previous|Next)<"
    assert re.findall(pager, fleet.get("/pipelines/orders").text) == ["Older", "Newer"]
    assert re.findall(r'href="([^"]*)">Older<', fleet.get("/pipelines/orders").text) == ["?which=timeline&amp;page=1"]
    assert re.findall(r'href="([^"]*)">Newer<', fleet.get("/pipelines/orders?page=1").text) == [
        "?which=timeline&amp;page=0"
    ]
    monkeypatch.setattr("holdfast.dashboard.overview.PAGE", 3)
    assert re.findall(pager, fleet.get("/").text) == ["Previous", "Next"]


def test_what_was_just_seen_is_counted(serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=1)
    it.claim(0)
    it.hint(it.run(0, range(3), 1_000, 1_000))
    repository.store.delete([it.keys.manifest(Slot(0, 1))])
    with serving(repository, token=TOKEN) as client:
        client.wait_for_the_sweep()
        client.sign_in()
        client.job(client.post("/pipelines/orders/check", {"read": "none"}))
        text = words(client.get("/").text)
        assert "1 damaged" in text
        assert "not looked at yet" not in text


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
    assert "checkpoint 0-13 is damaged: its bytes do not match its digest" in words(page)
    overview = fleet.get("/").text
    assert overview.index("checkpoint 0-13 is damaged") < overview.index("0000000013.json")


def test_the_row_of_a_damaged_pipeline_has_the_figures_of_the_last_that_can_be_read_and_says_so(fleet: Client) -> None:
    row = fleet.get("/").text.partition('href="/pipelines/inventory"')[2].partition("</tr>")[0]
    assert "0-12 , the last that can be read" in words(row)
    assert 'class="soft">–' not in row
    assert "every" not in row


def test_a_checkpoint_that_cannot_be_read_says_so_with_its_neighbours_and_what_to_do(fleet: Client) -> None:
    answer = fleet.get("/pipelines/inventory/checkpoints/0-9")
    assert answer.status == 200
    text = words(answer.text)
    assert "Checkpoint 0-9 can't be read: its bytes do not match its digest HF-2001" in text
    assert "holdfast check inventory --read-data --repair --repo memory://" in text
    assert 'href="/pipelines/inventory/checkpoints/0-8"' in answer.text


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


def test_a_checkpoint_of_a_newer_holdfast_is_not_to_be_repaired(serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=1)
    it.claim(0)
    it.checkpoint(Slot(0, 0), 0, 1_000, version="99.0")
    with serving(repository) as client:
        text = words(client.get("/pipelines/orders/checkpoints/0-0").text)
        assert "Upgrade Holdfast on this machine." in text
        assert "--repair" not in text


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


def test_objects_with_hostile_names_make_no_pipeline_and_no_savepoint(hostile: Client) -> None:
    hostile.sign_in()
    overview = hostile.get("/").text
    assert re.findall(r'class="name" href="([^"]*)"', overview) == ["/pipelines/orders"]
    page = hostile.get("/pipelines/orders?which=savepoints").text
    assert re.findall(r'tag-savepoint">([^<]*)<', page.partition('id="list"')[2]) == ["named"]
    for text in (overview, page):
        assert HOSTILE_KEY not in text
        assert str(escape(HOSTILE_KEY)) not in text


def test_a_check_tells_hostile_names_as_text(hostile: Client) -> None:
    hostile.sign_in()
    begun = hostile.post("/pipelines/orders/check", {"read": "none"})
    hostile.job(begun)
    page = hostile.get(begun.headers["location"]).text
    assert HOSTILE_KEY not in page
    assert str(escape(HOSTILE_KEY)) in page


def test_a_folder_whose_name_no_pipeline_can_have_is_none() -> None:
    repository = make_repo(open_store("memory://"))
    for name in ("orders", HOSTILE_KEY, ".hidden", "a b", "x" * 201):
        repository.store.put(f"pipelines/{name}/pipeline.json", b"{}")
    with closing(Fleet(repository)) as fleet:
        assert fleet.names() == ["orders"]


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
