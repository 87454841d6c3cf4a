"""The dashboard in a real browser: hostile names, every page in every light, the mouse, the keyboard, other sites."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

import servers
from builders import NAME, PACKED, filled, look, make_repo, save
from dashboard.conftest import TOKEN, Client, Serving
from dashboard.sample import HOSTILE_KEY, Writer
from dashboard.views import JOIN, WAYS, Views, every_view
from holdfast.dashboard import actions
from holdfast.dashboard import fleet as fleet_module
from holdfast.layout import Slot
from holdfast.store import open_store

HOSTILE_PAGES = [
    "/",
    "/pipelines/orders",
    "/pipelines/orders?which=savepoints",
    "/pipelines/orders/checkpoints/0-2",
    "/pipelines/orders/checkpoints/0-2/diff?with=slot:0-0",
    "/pipelines/orders/prune?keep_last=2",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # The machine may be busy: nothing here is judged by the clock.
    expect.set_options(timeout=60_000)
    with servers.chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def views(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    with every_view(serving, tmp_path_factory.mktemp("views")) as views:
        yield views


@contextmanager
def context(browser: Browser, client: Client, way: str = "light", **options: object) -> Iterator[BrowserContext]:
    """Somebody with a browser who has signed in."""
    opened = browser.new_context(base_url=client.url, **{**WAYS[way], **options})  # type: ignore[arg-type]
    opened.set_default_timeout(120_000)
    client.sign_in()
    name, _, value = client.cookie.partition("=")
    opened.add_cookies([{"name": name, "value": value, "url": client.url, "httpOnly": True, "sameSite": "Strict"}])
    try:
        yield opened
    finally:
        opened.close()


class Watched:
    """A page whose complaints and requests are written down."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.asked.append(request.url))


def see_without_harm(opened: BrowserContext, path: str) -> str:
    """The text of a page that holds hostile texts, once it was seen that none of them became script or markup."""
    watched = Watched(opened.new_page())
    page = watched.page
    page.goto(path)
    for target in page.locator("[data-tip]").all()[:12]:
        target.dispatch_event("pointerover")
    assert page.evaluate("window.hacked") is None
    assert watched.complaints == []
    assert page.locator("body script, [onload], iframe, object, embed").count() == 0
    return page.locator("body").inner_text()


@pytest.mark.parametrize("path", HOSTILE_PAGES)
def test_hostile_names_are_text_and_never_script(browser: Browser, hostile: Client, path: str) -> None:
    with context(browser, hostile) as opened:
        text = see_without_harm(opened, path)
        assert HOSTILE_KEY not in text
        if path != "/pipelines/orders/prune?keep_last=2":
            assert "<script>window.hacked=1</script>" in text


def test_jobs_tell_hostile_names_as_text(browser: Browser, hostile: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "SAVEPOINT_SECONDS", 0.1)
    with context(browser, hostile) as opened:
        checked = hostile.post("/pipelines/orders/check", {"read": "none"})
        failed = hostile.post("/pipelines/orders/savepoint", {"name": "in-vain"})
        for begun in (checked, failed):
            hostile.job(begun)
        text = see_without_harm(opened, checked.headers["location"])
        assert "<script>window.hacked=1</script>" in text
        assert f"savepoints/{HOSTILE_KEY}/0000000000.json" in text
        assert "failed" in see_without_harm(opened, failed.headers["location"])


CUT_OFF = """all => all.filter(it => it.parentNode.scrollWidth > it.parentNode.clientWidth)
  .map(it => it.parentNode.getAttribute("aria-label") || it.innerText.slice(0, 40))"""
"""Tables that are wider than the box that they stand in."""


@pytest.mark.parametrize("way", WAYS)
def test_every_page_is_accessible_and_fits_in_every_light_and_width(browser: Browser, views: Views, way: str) -> None:
    found: list[str] = []
    with context(browser, views.fleet, way) as opened:
        page = opened.new_page()
        for name, address in views.addresses.items():
            if way == "dark phone" and "," in name:
                continue  # The colours are those of "dark", the rest is that of "phone".
            page.goto(address)
            for violation in Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]:
                where = [node["target"] for node in violation["nodes"][:3]]
                found.append(f"{name}: {violation['id']}: {violation['help']} at {where}")
            too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            found += [f"{name}: wider than the screen"] if page.evaluate(too_wide) else []
            found += [f"{name}: {what} is cut off" for what in page.locator("table").evaluate_all(CUT_OFF)]
    assert found == []


def test_nothing_is_asked_of_anybody_else_and_nothing_is_refused_by_the_policy(browser: Browser, views: Views) -> None:
    with context(browser, views.fleet) as opened:
        watched = Watched(opened.new_page())
        for name, address in views.addresses.items():
            if name != "error":
                watched.page.goto(address)
        assert watched.complaints == []
        servers_of_ours = {urlsplit(address).netloc for address in views.addresses.values()}
        assert {urlsplit(url).netloc for url in watched.asked} <= servers_of_ours


def test_what_a_fault_is_called_stays_on_one_line(browser: Browser, views: Views) -> None:
    with context(browser, views.fleet) as opened:
        page = opened.new_page()
        page.goto(views.addresses["job, with faults"])
        lines = page.eval_on_selector_all("td .state", "all => all.map(it => it.getClientRects().length)")
    assert set(lines) == {1}


def test_no_table_is_cut_off_between_a_phone_and_a_desk(browser: Browser, views: Views) -> None:
    found: list[str] = []
    with context(browser, views.fleet) as opened:
        page = opened.new_page()
        for name, address in views.addresses.items():
            page.goto(address)
            for width in (761, 800, 900, 1001):
                page.set_viewport_size({"width": width, "height": 860})
                found += [f"{name}, {width}: {what}" for what in page.locator("table").evaluate_all(CUT_OFF)]
    assert found == []


@pytest.mark.parametrize("way", ["light", "phone"])
def test_the_name_of_a_store_stays_on_one_line(browser: Browser, views: Views, way: str) -> None:
    lines = """all => all.map(it => {
      const range = document.createRange();
      range.selectNodeContents(it);
      return range.getClientRects().length;
    })"""
    with context(browser, views.fleet, way) as opened:
        page = opened.new_page()
        page.goto(views.addresses["spark, join"])
        names = page.locator(".stores tbody th")
        assert names.all_inner_texts() == list(JOIN)
        assert set(names.evaluate_all(lines)) == {1}


def test_no_words_of_the_tree_overlap(browser: Browser, views: Views) -> None:
    boxes = "all => all.map(it => it.getBoundingClientRect()).map(it => [it.left, it.right, it.top + 2, it.bottom - 2])"
    with context(browser, views.fleet) as opened:
        page = opened.new_page()
        for view in ("pipeline", "pipeline, fork"):
            page.goto(views.addresses[view])
            found = page.locator(".tree text").evaluate_all(boxes)
            assert found
            for one, other in combinations(found, 2):
                assert one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]


PIECES = """all => all.flatMap(one => one.getAttribute("d").split(/(?=M)/).map(piece => {
  const part = one.cloneNode();
  part.setAttribute("d", piece);
  one.parentNode.append(part);
  const box = part.getBoundingClientRect();
  part.remove();
  return [box.left, box.right, box.top, box.bottom];
}))"""


@pytest.mark.parametrize("way", ["light", "phone"])
@pytest.mark.parametrize("view", ["pipeline", "pipeline, abandoned", "pipeline, damaged"])
def test_nothing_runs_through_the_titles_of_the_plot(browser: Browser, views: Views, way: str, view: str) -> None:
    boxes = "all => all.map(it => it.getBoundingClientRect()).map(it => [it.left, it.right, it.top, it.bottom])"
    with context(browser, views.fleet, way) as opened:
        page = opened.new_page()
        page.goto(views.addresses[view])
        titles = page.locator("[data-columns] .label, .change text").evaluate_all(boxes)
        drawn = page.locator(".change path, .band").evaluate_all(PIECES)
        assert len(titles) >= 6
        assert drawn
        crossed = [
            (title, one)
            for title in titles
            for one in drawn
            if title[0] < one[1] and one[0] < title[1] and title[2] < one[3] and one[2] < title[3]
        ]
    assert crossed == []


def test_a_plot_that_is_wider_than_the_screen_says_that_it_scrolls(browser: Browser, views: Views) -> None:
    wider = "it => it.scrollWidth > it.clientWidth"
    for way, scrolls in (("phone", True), ("light", False)):
        with context(browser, views.fleet, way) as opened:
            page = opened.new_page()
            page.goto(views.addresses["pipeline"])
            for plot in page.locator(".plot").all():
                assert plot.locator(".scroll").evaluate(wider) is scrolls
                assert plot.locator(".more-aside").is_visible() is scrolls


IN_SIGHT = """all => all.map(it => [it.getBoundingClientRect(), it.closest(".scroll").getBoundingClientRect()])
  .some(([it, box]) => it.right > box.left + 20 && it.left < box.right - 20)"""


def test_on_a_phone_a_tree_opens_where_a_branch_was_abandoned(browser: Browser, serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=1)
    it.claim(0)
    it.run(0, range(6), 1_000, 90_000)
    it.claim(1, "rewind", Slot(0, 2))
    it.hint(it.run(1, range(3, 40), 1_000, 1_000, Slot(0, 2)))
    with serving(repository, token=TOKEN) as client, context(browser, client, "phone") as opened:
        page = opened.new_page()
        page.goto("/pipelines/orders")
        assert page.locator(".tree .off line").evaluate_all(IN_SIGHT)


def test_without_scripts_the_pages_say_the_same(browser: Browser, fleet: Client) -> None:
    with context(browser, fleet, java_script_enabled=False) as opened:
        page = opened.new_page()
        page.goto("/pipelines/orders")
        expect(page.get_by_role("heading", name="Generations")).to_be_visible()
        assert page.locator(".column").count() == 60


def test_the_plot_answers_to_the_mouse_and_to_the_keyboard(browser: Browser, fleet: Client) -> None:
    with context(browser, fleet) as opened:
        page = opened.new_page()
        page.goto("/pipelines/orders")
        tip = page.locator("[data-tip-box]")
        expect(tip).to_be_hidden()
        page.locator(".column").nth(42).hover()
        expect(tip).to_contain_text("3-12, epoch 56")
        expect(tip).to_contain_text("savepoint nightly-audit")
        page.locator(".column").last.focus()
        expect(tip).to_contain_text("3-29, epoch 73")
        page.keyboard.press("ArrowLeft")
        expect(tip).to_contain_text("3-28, epoch 72")
        page.keyboard.press("Home")
        expect(tip).to_contain_text("0-14, epoch 14")
        page.keyboard.press("Escape")
        expect(tip).to_be_hidden()
        page.keyboard.press("Enter")
        page.wait_for_url("**/checkpoints/0-14")


def test_the_course_of_a_source_answers_to_the_mouse(browser: Browser, fleet: Client) -> None:
    with context(browser, fleet) as opened:
        page = opened.new_page()
        page.goto("/pipelines/orders")
        page.locator("#sources figure").nth(2).locator(".hit").last.hover()
        expect(page.locator("[data-tip-box]")).to_contain_text("orders at 345,045")


def test_the_course_of_a_source_answers_to_the_keyboard(browser: Browser, fleet: Client) -> None:
    with context(browser, fleet) as opened:
        page = opened.new_page()
        page.goto("/pipelines/orders")
        tip = page.locator("[data-tip-box]")
        page.locator("#sources summary").first.focus()
        page.keyboard.press("Shift+Tab")
        expect(tip).to_contain_text("orders at 345,045")
        page.keyboard.press("ArrowLeft")
        expect(tip).to_contain_text("orders at 341")
        page.keyboard.press("Shift+Tab")
        expect(tip).to_contain_text("customers at 24,102,728")


def test_a_fork_is_a_click_away_from_where_it_left_and_its_parent_from_it(browser: Browser, fleet: Client) -> None:
    with context(browser, fleet) as opened:
        page = opened.new_page()
        page.goto("/pipelines/orders")
        page.locator(".tree-fork text").click()
        page.wait_for_url("**/pipelines/orders-backfill")
        page.locator(".tree a", has_text="fork of orders@1-9").click()
        page.wait_for_url("**/pipelines/orders/checkpoints/1-9")


def test_what_was_not_there_at_first_shows_itself_without_a_reload(
    browser: Browser, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(fleet_module, "CLOSE_LOOK_SECONDS", 0.0)
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=2)
    it.claim(0)
    with serving(repository, token=TOKEN) as client, context(browser, client) as opened:
        page = opened.new_page()
        page.clock.install()
        page.goto("/pipelines/orders")
        page.evaluate("window.mark = 1")
        later = ["#sources", "#sinks", "#list", "#trouble", "#jobs"]
        for part in later:
            expect(page.locator(part)).to_be_hidden()
        it.hint(it.run(0, range(3), 1_000, 1_000))
        client.job(client.post("/pipelines/orders/check", {"read": "none"}))
        page.clock.fast_forward(6_000)
        for part in ("#sources", "#sinks", "#list", "#jobs"):
            expect(page.locator(part)).to_be_visible()
        expect(page.locator("#sinks tbody tr")).to_have_count(2)
        repository.store.delete([it.keys.manifest(Slot(0, 1))])
        page.clock.fast_forward(6_000)
        expect(page.locator("#trouble")).to_contain_text("the manifest of 0-1")
        repository.store.delete([it.keys.identity])
        page.clock.fast_forward(6_000)
        expect(page.locator("#trouble")).to_contain_text("pipeline.json is gone")
        expect(page.locator("#list")).to_be_hidden()
        assert page.evaluate("window.mark") == 1


def test_a_job_is_asked_after_every_second_from_the_first_one_on(
    browser: Browser, fleet: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "SAVEPOINT_SECONDS", 3.0)
    with context(browser, fleet) as opened:
        page = opened.new_page()
        page.clock.install(time=0)
        page.clock.pause_at(1_000)  # It stands still from here on: otherwise any timer would fire while we wait.
        begun = fleet.post("/pipelines/payments/savepoint", {"name": "in-vain"})
        page.goto(begun.headers["location"])
        expect(page.locator("#job .state")).to_have_text("running")
        fleet.job(begun)
        page.clock.run_for(1_500)
        expect(page.locator("#job .state")).to_have_text("failed", timeout=20_000)


def test_a_new_checkpoint_shows_itself_without_a_reload(
    browser: Browser, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "FRESH_SECONDS", 0.0)
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=2)
    it.claim(0)
    it.hint(it.run(0, range(5), 1_000, 1_000))
    with serving(repository, token=TOKEN) as client, context(browser, client) as opened:
        page = opened.new_page()
        page.clock.install()
        page.goto("/pipelines/orders")
        page.evaluate("window.mark = 1")
        page.locator("#h-sources").scroll_into_view_if_needed()
        it.hint(it.run(0, range(7), 1_000, 0))
        page.clock.fast_forward(6_000)
        expect(page.locator(".column")).to_have_count(7)
        expect(page.locator("[data-pulse]")).to_have_text("live")
        assert page.evaluate("window.mark") == 1


def test_whoever_has_scrolled_back_stays_there_and_whoever_is_at_the_end_follows(
    browser: Browser, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "FRESH_SECONDS", 0.0)
    repository = make_repo(open_store("memory://"))
    it = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=2)
    it.claim(0)
    it.hint(it.run(0, range(20), 1_000, 1_000))
    with serving(repository, token=TOKEN) as client, context(browser, client, "phone") as opened:
        page = opened.new_page()
        page.clock.install()
        page.goto("/pipelines/orders")
        plot = page.locator("#history .scroll")
        end = plot.evaluate("it => it.scrollLeft")
        assert end > 300
        for count, place, kept in ((21, 120, 120), (22, 1e6, end)):
            plot.evaluate("(it, place) => { it.scrollLeft = place }", place)
            it.hint(it.run(0, range(count), 1_000, 0))
            page.clock.fast_forward(6_000)
            expect(page.locator(".column")).to_have_count(count)
            assert plot.evaluate("it => it.scrollLeft") == kept


def test_whose_sign_in_has_ended_is_asked_for_another(browser: Browser, serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    with serving(repository, host="0.0.0.0", token=TOKEN) as client, context(browser, client) as opened:
        page = opened.new_page()
        page.clock.install()
        page.goto("/")
        cookies = opened.cookies()
        opened.clear_cookies()
        page.clock.fast_forward(6_000)
        expect(page.locator("[data-pulse]")).to_have_text("sign in again")
        opened.add_cookies(cookies)  # type: ignore[arg-type]
        page.clock.fast_forward(31_000)
        expect(page.locator("[data-pulse]")).to_have_text("live")
        opened.clear_cookies()
        page.clock.fast_forward(6_000)
        page.get_by_role("link", name="sign in again").click()
        page.wait_for_url("**/login")


def test_a_lost_server_is_told_and_found_again(browser: Browser, serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    with serving(repository, token=TOKEN) as client, context(browser, client) as opened:
        page = opened.new_page()
        page.clock.install()
        page.goto("/")
        page.route("**/*", lambda route: route.abort())
        page.clock.fast_forward(6_000)
        expect(page.locator("[data-pulse]")).to_have_text("not reached; trying again")
        page.unroute("**/*")
        page.clock.fast_forward(31_000)
        expect(page.locator("[data-pulse]")).to_have_text("live")


def test_somebody_signs_in_checks_and_prunes(browser: Browser, serving: Serving, tmp_path: Path) -> None:
    repository = filled(8, open_store(str(tmp_path / "repository")))
    with serving(repository, token=TOKEN) as client, context(browser, client) as opened:
        page = opened.new_page()
        opened.clear_cookies()
        page.goto("/login")
        page.get_by_label("Token").fill("not the token at all")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_have_text("That is not the token.")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{client.url}/")
        page.goto(f"/pipelines/{NAME}")
        page.get_by_label("Read", exact=True).select_option("every byte")
        page.get_by_role("button", name="Check").click()
        expect(page.get_by_text("Everything is there and is what was written.")).to_be_visible()
        page.goto(f"/pipelines/{NAME}/prune")
        page.get_by_label("newest").fill("3")
        page.get_by_role("button", name="Show the plan").click()
        expect(page.get_by_text("Keeps 3 checkpoints, drops 5.")).to_be_visible()
        assert len(look(repository).checkpoints()) == 8
        page.get_by_role("button", name="Carry out this plan").click()
        expect(page.get_by_text("Removed 5 checkpoints")).to_be_visible()
        assert len(look(repository).checkpoints()) == 3
        page.get_by_role("button", name="Sign out").click()
        page.goto(f"/pipelines/{NAME}")
        expect(page.get_by_role("button", name="Check")).to_have_count(0)


def test_the_form_of_another_site_is_403_although_its_victim_is_signed_in(browser: Browser, serving: Serving) -> None:
    repository = make_repo(open_store("memory://"))
    with repository.pipeline("orders").recover(limits=PACKED) as run:
        save(run, 0)
    with serving(repository, token=TOKEN) as client, context(browser, client) as opened:
        form = f'<form method="post" action="{client.url}/pipelines/orders/check"><button>Win</button></form>'
        with _site(form.encode()) as elsewhere:
            page = opened.new_page()
            page.goto(elsewhere)
            with page.expect_navigation() as went:
                page.get_by_role("button").click()
            assert went.value is not None
            assert went.value.status == 403
        client.sign_in()
        assert "/jobs/" not in client.get("/pipelines/orders").text


@contextmanager
def _site(html: bytes) -> Iterator[str]:
    """Another site, by a name that is not the dashboard's."""

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(html)

        def log_message(self, *_: object) -> None:
            """Nothing is written."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://localhost:{server.server_port}/"
        finally:
            server.shutdown()


def test_a_chosen_theme_stays(browser: Browser, fleet: Client) -> None:
    with context(browser, fleet) as opened:
        page = opened.new_page()
        page.goto("/")
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        for _ in range(2):
            page.get_by_role("button", name="Theme").click()
        assert page.evaluate(ground) != light
        page.goto("/pipelines/orders")
        assert page.evaluate(ground) != light
        expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()


def test_a_command_is_copied(browser: Browser, fleet: Client) -> None:
    with context(browser, fleet, permissions=["clipboard-read", "clipboard-write"]) as opened:
        page = opened.new_page()
        page.goto("/pipelines/orders/checkpoints/3-12")
        page.locator(".copy").nth(1).click()
        expect(page.locator(".copy").nth(1)).to_have_text("Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == "holdfast restore orders@slot:3-12 ./orders-restored --repo memory://"
