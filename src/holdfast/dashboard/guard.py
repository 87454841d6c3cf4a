"""Who may see and do what. Every request passes here before any page is asked.

Names in a Host header can be made to lead here from anywhere (DNS rebinding); addresses can't, and are taken as they
are. A request that changes something must come from a page of this very site, or from a program that holds the token.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import BadValue, NotAllowed
from holdfast.report import plain

__all__ = ["COOKIE", "Access", "Guard", "is_loopback"]

COOKIE = "holdfast"
SHORTEST_TOKEN = 16
SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 64
READING = frozenset({"GET", "HEAD"})
OPEN_PATHS = frozenset({"/healthz", "/login"})

HEADERS = {
    # Nothing but our own files: neither a name that slipped through nor a browser extension's idea of one can run here.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": browsers would then send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def is_loopback(address: str) -> bool:
    """Whether an address to listen on can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


class Access:
    """The token, those who signed in with it, and the names that this site goes by.

    Without a token nothing can be changed from here. `open_reads`: looking needs no token.
    """

    def __init__(self, token: str | None, *, open_reads: bool = True, names: frozenset[str] = frozenset()) -> None:
        if token is not None and len(token) < SHORTEST_TOKEN:
            raise BadValue("token", f"it has fewer than {SHORTEST_TOKEN} characters; `openssl rand -hex 16` makes one")
        if token is None and not open_reads:
            raise BadValue(
                "token",
                "an address that others can reach needs one, by HOLDFAST_DASHBOARD_TOKEN or --token; "
                "`openssl rand -hex 16` makes one",
            )
        self._token = token
        self.open_reads = open_reads
        self._names = names | {"localhost"}
        self._sessions: dict[bytes, float] = {}
        self._lock = threading.Lock()

    @property
    def can_sign_in(self) -> bool:
        return self._token is not None

    def sign_in(self, token: str) -> str | None:
        """The id of a new session, or None for a wrong token."""
        if not self._is_token(token):
            return None
        session = secrets.token_urlsafe(32)
        with self._lock:
            now = time.monotonic()
            alive = {key: until for key, until in self._sessions.items() if until > now}
            while len(alive) >= MOST_SESSIONS:
                del alive[min(alive, key=alive.__getitem__)]
            alive[_digest(session)] = now + SESSION_SECONDS
            self._sessions = alive
        return session

    def sign_out(self, connection: HTTPConnection) -> None:
        with self._lock:
            self._sessions.pop(_digest(connection.cookies.get(COOKIE, "")), None)

    def knows(self, connection: HTTPConnection) -> bool:
        """Whether a request shows the token, or the cookie of somebody who did."""
        return self._shows_token(connection.headers) or self._has_session(connection)

    def may_change(self, connection: HTTPConnection) -> bool:
        """Whether a request that changes something is of this site's own making, by somebody who is known."""
        if self._shows_token(connection.headers):
            return not _is_from_elsewhere(connection.headers)
        return self._has_session(connection) and self.is_own(connection.headers)

    def is_own(self, headers: Headers) -> bool:
        """Whether a browser says that a page of ours sent this. One that says nothing is not believed."""
        says_something = "origin" in headers or "sec-fetch-site" in headers
        return says_something and not _is_from_elsewhere(headers)

    def is_our_name(self, host: str) -> bool:
        """Whether a Host header names this site: an address, or a name that it was told to go by."""
        if not host or not set(host).isdisjoint("@/?#\\"):
            return False
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self._names or _is_address(name)

    def _shows_token(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self._is_token(given.strip())

    def _has_session(self, connection: HTTPConnection) -> bool:
        until = self._sessions.get(_digest(connection.cookies.get(COOKIE, "")))
        return until is not None and until > time.monotonic()

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(_digest(given), _digest(self._token))


class Guard:
    """Lets a request through to the app or answers it with 403, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(HTTPConnection(scope), scope["method"], scope["path"])

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, connection: HTTPConnection, method: str, path: str) -> Response | None:
        access = self._access
        is_api = path.startswith("/api/")
        if not access.is_our_name(connection.headers.get("host", "")):
            return _refuse("this site does not go by that name (--allow-host adds one)", is_api)
        if method not in READING:
            if path == "/login":
                return None if access.is_own(connection.headers) else _refuse("it came from another site", is_api)
            return (
                None
                if access.may_change(connection)
                else _refuse("changes need the token, from a page of this site or as a bearer", is_api)
            )
        if access.open_reads or path in OPEN_PATHS or path.startswith("/static/") or access.knows(connection):
            return None
        if is_api or path in ("/metrics", "/openapi.json"):
            return _refuse("looking needs the token", is_api=True)
        return RedirectResponse("/login", status_code=303)


def _refuse(why: str, is_api: bool) -> Response:
    refused = NotAllowed(why)
    if is_api:
        return JSONResponse({"error": plain(refused)}, status_code=403)
    return PlainTextResponse(f"{refused}\n{refused.hint}\n", status_code=403)


def _is_from_elsewhere(headers: Headers) -> bool:
    """Whether a browser says that another site sent this."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            sender = urlsplit(origin).netloc.lower()
        except ValueError:
            return True  # No browser of ours wrote that.
        if sender != headers.get("host", "").lower():
            return True
    return headers.get("sec-fetch-site", "same-origin") != "same-origin"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
