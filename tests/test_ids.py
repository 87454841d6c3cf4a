from __future__ import annotations

import uuid

import pytest

from holdfast import ids


def test_checkpoint_ids_are_version_seven_and_carry_the_time() -> None:
    before = ids.now_ms()
    made = uuid.UUID(ids.new_id())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before <= made.int >> 80 <= ids.now_ms()


def test_no_two_ids_or_tokens_are_the_same() -> None:
    assert len({ids.new_id() for _ in range(1000)} | {ids.new_token() for _ in range(1000)}) == 2000


def test_a_user_without_a_name_is_known_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("no such user")

    monkeypatch.setattr(ids.getpass, "getuser", nameless)
    assert ids.whoami().split("@")[0].isdigit()
