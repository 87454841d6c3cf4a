"""One message to one receiver: it is taken, or it is not, and either way the attempt has an end."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from holdfast.sidecar.receivers import Command, Refused, Webhook
from sidecar.receiving import Inbox, until

MESSAGE = json.dumps({"status": "firing", "key": "damage/orders"}).encode()
NOTHING: dict[str, str] = {}


def test_a_webhook_gets_json_with_the_headers_that_were_given(inbox: Inbox) -> None:
    Webhook(f"{inbox.url}/token", {"Authorization": "Bearer abc"}, 10).send(MESSAGE, NOTHING)
    assert inbox.told() == ["firing damage/orders"]
    assert inbox.headers["Authorization"] == "Bearer abc"
    assert inbox.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(("answer", "why"), [(500, "it answered 500"), (404, "answered 404"), (302, "302: redirect")])
def test_what_is_not_answered_with_success_was_not_taken(inbox: Inbox, answer: int, why: str) -> None:
    inbox.answer = answer
    with pytest.raises(Refused, match=why):
        Webhook(inbox.url, {}, 10).send(MESSAGE, NOTHING)
    assert inbox.asked == 1, "a redirect is not followed"


@pytest.mark.parametrize("answer", ["hang", "drip"])
def test_a_receiver_that_never_finishes_is_hung_up_on(inbox: Inbox, answer: str) -> None:
    inbox.answer = answer
    began = time.monotonic()
    with pytest.raises(Refused, match=r"it did not answer within 0\.5 s"):
        Webhook(inbox.url, {}, 0.5).send(MESSAGE, NOTHING)
    assert time.monotonic() - began < 30


def test_a_receiver_that_is_not_there_is_told_without_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with pytest.raises(Refused) as told:
        Webhook(f"http://127.0.0.1:{port}/s3cret", {}, 5).send(MESSAGE, NOTHING)
    assert str(told.value) == "Connection refused"
    with pytest.raises(Refused) as told:
        Webhook(f"https://127.0.0.1:{port}/s3cret?x=s3cret", {}, 5).send(MESSAGE, NOTHING)
    assert "s3cret" not in str(told.value)


def test_a_server_that_speaks_no_https_is_told_without_its_address(inbox: Inbox) -> None:
    with pytest.raises(Refused) as told:
        Webhook(f"{inbox.url.replace('http', 'https')}/s3cret", {}, 5).send(MESSAGE, NOTHING)
    assert "s3cret" not in str(told.value)


def test_a_command_gets_the_message_on_stdin_and_in_variables(tmp_path: Path) -> None:
    script = f"cat > {tmp_path}/in; echo $HOLDFAST_ALERT_KEY > {tmp_path}/key"
    Command(["sh", "-c", script], 10).send(MESSAGE, {"HOLDFAST_ALERT_KEY": "damage/orders"})
    assert (tmp_path / "in").read_bytes() == MESSAGE
    assert (tmp_path / "key").read_text() == "damage/orders\n"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["sh", "-c", "exit 3"], "it ended with 3"),
        (["/no/such/program", "s3cret"], "/no/such/program can't be run: No such file"),
        (["sh", "-c", "cat > /dev/null; exit 0 # s3cret", "s3cret"], ""),
    ],
)
def test_a_command_has_taken_what_it_ends_well_with(command: list[str], why: str) -> None:
    if not why:
        Command(command, 10).send(MESSAGE, NOTHING)
        return
    with pytest.raises(Refused) as told:
        Command(command, 10).send(MESSAGE, NOTHING)
    assert str(told.value).startswith(why)
    assert "s3cret" not in str(told.value)


def test_a_command_that_does_not_read_its_input_has_taken_it_all_the_same() -> None:
    Command(["true"], 10).send(b"x" * 1_000_000, NOTHING)


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"sleep 300 & echo $! > {tmp_path}/child; wait"
    with pytest.raises(Refused, match=r"it did not end within 0\.5 s"):
        Command(["sh", "-c", script], 0.5).send(MESSAGE, NOTHING)
    child = int((tmp_path / "child").read_text())

    def is_gone() -> bool:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{child}/stat").read_text().split()[2] == "Z"

    until(is_gone)
