"""A dashboard that really listens, and a client that sends exactly what a test says."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from dashboard.sample import make_fleet, make_hostile
from holdfast.dashboard.fleet import Rules
from holdfast.dashboard.server import serve
from holdfast.handles import Repository
from holdfast.store import open_store

TOKEN = "correct-horse-battery-staple"
SECONDS = 60


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def document(self) -> Any:
        return json.loads(self.text)


class Client:
    """Talks to one dashboard as a browser on its own pages does, unless told otherwise."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.url = f"http://{self.host}"
        self.cookie = ""

    def send(self, method: str, path: str, body: str = "", **headers: str) -> Answer:
        """Send a request with these headers (`content_type` for content-type) and no other but Host."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        given.setdefault("host", self.host)
        if self.cookie:
            given.setdefault("cookie", self.cookie)
        try:
            connection.request(method, path, body.encode() or None, given)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read().decode())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def post(self, path: str, form: Mapping[str, str] | None = None, **headers: str) -> Answer:
        """Send a form as a page of the dashboard would."""
        given = {"origin": self.url, "sec_fetch_site": "same-origin", **headers}
        given = {name: value for name, value in given.items() if value}
        return self.send("POST", path, urlencode(form or {}), content_type="application/x-www-form-urlencoded", **given)

    def call(self, path: str, document: Any, token: str = TOKEN, **headers: str) -> Answer:
        """Call the API as a program would."""
        given = {"authorization": f"Bearer {token}"} if token else {}
        return self.send("POST", path, json.dumps(document), content_type="application/json", **given, **headers)

    def sign_in(self, token: str = TOKEN) -> Answer:
        answer = self.post("/login", {"token": token})
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    def wait_for_the_sweep(self) -> None:
        """Wait until every pipeline was looked at once."""
        while "holdfast_pipelines_unread 0.0" not in self.get("/metrics").text:
            time.sleep(0.05)

    def job(self, answer: Answer) -> Any:
        """Wait for what was set off."""
        where = answer.headers["location"].replace("/jobs/", "/api/jobs/") if answer.status == 303 else ""
        where = where or answer.document["at"]
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            found = self.get(where).document
            if found["state"] != "running":
                return found
            time.sleep(0.05)
        raise AssertionError("it never ended")


@contextmanager
def dashboard(repository: Repository, **options: Any) -> Iterator[Client]:
    """A dashboard of a repository, on a free port of this machine, until the block ends."""
    addresses: list[str] = []
    up, stop = threading.Event(), threading.Event()

    def ready(url: str) -> None:
        addresses.append(url)
        up.set()

    thread = threading.Thread(target=serve, args=(repository,), kwargs={**options, "ready": ready, "stop": stop})
    thread.start()
    try:
        assert up.wait(SECONDS)
        yield Client(int(addresses[0].rstrip("/").rpartition(":")[2]))
    finally:
        stop.set()
        thread.join(SECONDS)
        assert not thread.is_alive()


Serving = Callable[..., AbstractContextManager[Client]]


@pytest.fixture(scope="session")
def serving() -> Serving:
    return dashboard


@pytest.fixture(scope="module")
def fleet() -> Iterator[Client]:
    """The sample repository, with a token, and every pipeline of it looked at."""
    repository = make_fleet(open_store("memory://"), time.time_ns() // 1_000_000)
    with dashboard(repository, token=TOKEN, rules=Rules()) as client:
        client.wait_for_the_sweep()
        yield client


@pytest.fixture(scope="module")
def hostile() -> Iterator[Client]:
    repository = make_hostile(open_store("memory://"), time.time_ns() // 1_000_000)
    with dashboard(repository, token=TOKEN) as client:
        yield client
