"""How a message reaches a receiver: a POST of JSON, or a program that is run. One attempt, with an end to it.

Nothing that is raised here names more of an address than its host, or more of a command than its program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NoReturn, Protocol

from holdfast._version import __version__
from holdfast.config import ReceiverTable

__all__ = ["Command", "Receiver", "Refused", "Webhook", "receiver_of"]


class Refused(Exception):
    """The receiver did not take a message, in words that may be shown."""


class Receiver(Protocol):
    def send(self, document: bytes, variables: Mapping[str, str]) -> None:
        """Give one message, as JSON and as variables; return once it was taken. Raises Refused."""


def receiver_of(table: ReceiverTable) -> Receiver:
    """The receiver that a table describes."""
    if table.webhook is not None:
        return Webhook(table.webhook, table.headers, table.timeout.seconds)
    assert table.command is not None
    return Command(table.command, table.timeout.seconds)


class Webhook:
    """Posts to a URL. Taken is what is answered with 2xx; a redirect is not followed, since headers would go along."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self._url = url
        self._headers = {
            "Content-Type": "application/json",
            "User-Agent": f"holdfast/{__version__}",
            **headers,
        }
        self._timeout = timeout

    def send(self, document: bytes, variables: Mapping[str, str]) -> None:  # noqa: ARG002 - for commands
        request = urllib.request.Request(self._url, data=document, headers=dict(self._headers), method="POST")
        connections: list[HTTPConnection] = []
        opener = urllib.request.build_opener(_Opened(connections), _OpenedSafely(connections), _NotElsewhere())
        # The timeout of a socket begins anew with every byte: one that drips would never end.
        hung_up = threading.Event()
        end = threading.Timer(self._timeout, _hang_up, [connections, hung_up])
        end.daemon = True
        end.start()
        try:
            with opener.open(request, timeout=self._timeout):
                if hung_up.is_set():  # in the middle of an answer, which then looks as if it were all of it
                    raise TimeoutError
        except urllib.error.HTTPError as error:
            error.close()
            raise Refused(f"it answered {error.code}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise Refused(self._why(error, ended=hung_up.is_set())) from None
        finally:
            end.cancel()

    def _why(self, error: Exception, *, ended: bool) -> str:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if ended or isinstance(reason, TimeoutError):
            return f"it did not answer within {self._timeout:g} s"
        if isinstance(reason, OSError) and reason.strerror:
            return reason.strerror
        # Other texts may repeat the address.
        return f"it could not be reached ({type(reason).__name__})"


class _Opened(urllib.request.HTTPHandler):
    """Opens connections, and notes each so that it can be cut off."""

    def __init__(self, connections: list[HTTPConnection]) -> None:
        super().__init__()
        self._connections = connections

    def http_open(self, req: urllib.request.Request) -> Any:
        def connect(host: str, **more: Any) -> HTTPConnection:
            self._connections.append(HTTPConnection(host, **more))
            return self._connections[-1]

        return self.do_open(connect, req)


class _OpenedSafely(urllib.request.HTTPSHandler):
    def __init__(self, connections: list[HTTPConnection]) -> None:
        super().__init__()
        self._connections = connections

    def https_open(self, req: urllib.request.Request) -> Any:
        def connect(host: str, **more: Any) -> HTTPSConnection:
            connection = HTTPSConnection(host, **more)
            self._connections.append(connection)
            return connection

        return self.do_open(connect, req)


class _NotElsewhere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> NoReturn:  # noqa: ARG002
        fp.close()
        raise Refused(f"it answered {code}: redirects are not followed")


def _hang_up(connections: list[HTTPConnection], hung_up: threading.Event) -> None:
    hung_up.set()
    for connection in connections:
        with contextlib.suppress(OSError):
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)


class Command:
    """Runs a program with the message on its stdin and in variables. It has taken it if it ends with 0."""

    def __init__(self, command: list[str], timeout: float) -> None:
        self._command = command
        self._timeout = timeout

    def send(self, document: bytes, variables: Mapping[str, str]) -> None:
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # stderr is ours: what goes wrong in it is seen
                env={**os.environ, **variables},
                start_new_session=True,
            )
        except OSError as error:
            raise Refused(f"{self._command[0]} can't be run: {error.strerror}") from None
        try:
            process.communicate(document, timeout=self._timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Refused(f"it did not end within {self._timeout:g} s") from None
        if process.returncode:
            raise Refused(f"it ended with {process.returncode}")
