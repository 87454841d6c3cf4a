"""A receiver for the tests that want one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sidecar.receiving import Inbox, receiving


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with receiving() as it:
        yield it
