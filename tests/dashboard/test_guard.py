"""Who may see and do what: writes without the token, with a wrong one or from another site are 403 and do nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from builders import dump, make_repo
from dashboard.conftest import TOKEN, Answer, Client, Serving
from dashboard.sample import Writer
from holdfast.dashboard.guard import Access, is_loopback
from holdfast.errors import BadValue
from holdfast.handles import Repository
from holdfast.store import open_store

FORMS = {
    "/pipelines/orders/savepoint": {"name": "evil"},
    "/pipelines/orders/check": {"read": "all"},
    "/pipelines/orders/prune": {"plan": "x"},
}
CALLS = {
    "/api/pipelines/orders/savepoints": {"name": "evil"},
    "/api/pipelines/orders/checks": {"read_percent": 100},
    "/api/pipelines/orders/prune-plans": {"keep_last": 1},
    "/api/pipelines/orders/prunes": {"plan_id": "x"},
}


@pytest.fixture
def repository() -> Repository:
    repository = make_repo(open_store("memory://"))
    orders = Writer(repository, "orders", time.time_ns() // 1_000_000, partitions=2)
    orders.claim(0)
    orders.hint(orders.run(0, range(5), 1_000, 1_000))
    return repository


@pytest.fixture
def client(repository: Repository, serving: Serving) -> Iterator[Client]:
    with serving(repository, token=TOKEN) as client:
        yield client


Attempt = Callable[[Client, str], Answer]


def refused(client: Client, repository: Repository, attempt: Attempt) -> None:
    """Every write is answered with 403 and leaves no job and no byte behind."""
    before = dump(repository.store)
    for path in [*FORMS, *CALLS]:
        answer = attempt(client, path)
        assert answer.status == 403, path
        assert "HF-5050" in answer.text
    assert dump(repository.store) == before
    client.sign_in()
    assert "/jobs/" not in client.get("/pipelines/orders").text


def write(client: Client, path: str, **headers: str) -> Answer:
    if path in FORMS:
        return client.post(path, FORMS[path], **headers)
    return client.call(path, CALLS[path], token="", **headers)


def test_a_write_without_the_token_is_403_and_does_nothing(client: Client, repository: Repository) -> None:
    refused(client, repository, write)


def test_a_write_with_a_wrong_token_is_403_and_does_nothing(client: Client, repository: Repository) -> None:
    for wrong in ("wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "", "ü" * 20):
        refused(client, repository, lambda c, path, wrong=wrong: write(c, path, authorization=f"Bearer {wrong}"))  # type: ignore[misc]
        client.cookie = ""


def test_a_write_with_a_made_up_cookie_is_403_and_does_nothing(client: Client, repository: Repository) -> None:
    refused(client, repository, lambda c, path: write(c, path, cookie=f"holdfast={TOKEN}"))


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example", "sec_fetch_site": "cross-site"},
        {"origin": "https://evil.example", "sec_fetch_site": ""},
        {"origin": "null", "sec_fetch_site": ""},
        {"origin": "http://[", "sec_fetch_site": ""},
        {"origin": "", "sec_fetch_site": "cross-site"},
        {"origin": "", "sec_fetch_site": "same-site"},
        {"origin": "", "sec_fetch_site": "none"},
        {"origin": "", "sec_fetch_site": ""},
        {"origin": "http://127.0.0.1:1", "sec_fetch_site": "same-site"},
    ],
)
def test_a_write_from_another_site_is_403_although_the_cookie_is_right(
    client: Client, repository: Repository, headers: dict[str, str]
) -> None:
    client.sign_in()
    before = dump(repository.store)
    for path, form in FORMS.items():
        assert client.post(path, form, **headers).status == 403
    assert dump(repository.store) == before
    assert "/jobs/" not in client.get("/pipelines/orders").text


def test_a_write_from_another_site_is_403_although_the_token_is_right(client: Client, repository: Repository) -> None:
    for path, document in CALLS.items():
        assert client.call(path, document, origin="https://evil.example").status == 403
        assert client.call(path, document, sec_fetch_site="cross-site").status == 403


def test_a_program_with_the_token_may(client: Client) -> None:
    answer = client.call("/api/pipelines/orders/checks", {})
    assert answer.status == 202
    assert client.job(answer)["state"] == "done"


def test_signing_in_sets_a_cookie_that_no_script_and_no_other_site_can_use(client: Client) -> None:
    answer = client.sign_in()
    cookie = answer.headers["set-cookie"]
    assert answer.status == 303
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert client.post("/pipelines/orders/check").status == 303


def test_signing_in_with_a_wrong_token_is_403(client: Client) -> None:
    answer = client.sign_in("wrong")
    assert answer.status == 403
    assert "set-cookie" not in answer.headers
    assert "That is not the token." in answer.text


def test_another_site_cannot_sign_somebody_in(client: Client) -> None:
    assert client.post("/login", {"token": TOKEN}, origin="https://evil.example").status == 403


def test_after_signing_out_the_cookie_is_worth_nothing(client: Client) -> None:
    client.sign_in()
    kept = client.cookie
    assert client.post("/logout").status == 303
    client.cookie = kept
    assert client.post("/pipelines/orders/check").status == 403


def test_without_a_token_nothing_can_be_done_and_everything_seen(repository: Repository, serving: Serving) -> None:
    with serving(repository) as client:
        assert client.get("/pipelines/orders").status == 200
        assert client.sign_in("").status == 403
        refused(client, repository, lambda c, path: write(c, path, authorization="Bearer "))


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "a@127.0.0.1"]
)
def test_a_name_that_was_led_here_gets_nothing(client: Client, host: str) -> None:
    for path in ("/", "/api/pipelines", "/metrics", "/healthz", "/static/style.css"):
        answer = client.get(path, host=host)
        assert answer.status in (400, 403)
        assert "orders" not in answer.text


def test_names_that_were_allowed_and_addresses_are_taken(repository: Repository, serving: Serving) -> None:
    with serving(repository, names=["Dash.Example"]) as client:
        for host in ("dash.example", "dash.example:8420", "localhost:1", "127.0.0.1", "[::1]:99", "10.0.0.5"):
            assert client.get("/", host=host).status == 200


def test_on_an_address_that_others_reach_even_looking_needs_the_token(repository: Repository, serving: Serving) -> None:
    with serving(repository, host="0.0.0.0", token=TOKEN) as client:
        assert client.get("/healthz").status == 200
        assert client.get("/").headers["location"] == "/login"
        assert client.get("/pipelines/orders").status == 303
        for path in ("/api/pipelines", "/metrics", "/openapi.json"):
            assert client.get(path).status == 403
            assert client.get(path, authorization=f"Bearer {TOKEN}").status == 200
        client.sign_in()
        assert client.get("/pipelines/orders").status == 200


def test_an_address_that_others_reach_is_refused_without_a_token(repository: Repository, serving: Serving) -> None:
    with pytest.raises(BadValue, match="needs one"):
        Access(None, open_reads=is_loopback("0.0.0.0"))


def test_a_token_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(BadValue, match="fewer than 16"):
        Access("short")


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.4", False),
        ("example.com", False),
    ],
)
def test_which_addresses_only_this_machine_reaches(address: str, loopback: bool) -> None:
    assert is_loopback(address) == loopback


def test_sessions_are_bounded_and_the_oldest_goes_first() -> None:
    access = Access(TOKEN)
    for _ in range(200):
        access.sign_in(TOKEN)
    assert len(access._sessions) <= 64


@pytest.mark.parametrize("path", ["/", "/pipelines/orders", "/nope", "/api/pipelines", "/static/live.js", "/metrics"])
def test_every_answer_forbids_what_is_not_ours(client: Client, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers
    if not path.startswith("/static/"):
        assert headers["cache-control"] == "no-store"


def test_reading_never_changes_anything(client: Client, repository: Repository) -> None:
    before = dump(repository.store)
    client.sign_in()
    for path in ("/", "/pipelines/orders", "/pipelines/orders/checkpoints/0-4", "/pipelines/orders/prune?keep_last=1"):
        assert client.get(path).status == 200
    assert client.get("/pipelines/orders/savepoint").status == 405
    assert client.get("/logout").status == 405
    assert dump(repository.store) == before
