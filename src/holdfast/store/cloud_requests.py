"""How a request to a cloud is sent: never in a forked child, and with our own names for what goes wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from obstore.exceptions import BaseError

from holdfast.errors import ForkedProcess
from holdfast.store.cloud_errors import translate

__all__ = ["Requests"]

T = TypeVar("T")

_first_user: int | None = None
"""The process that started obstore's threads; they do not live on in a forked child, and a call there never returns."""


class Requests:
    """Sends the requests to one bucket or container. Raises Transient, which Patience turns into further attempts."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._worked = False

    def __call__(self, action: str, key: str, request: Callable[[], T]) -> T:
        """Send one; an error that is not obstore's own comes through as it is."""
        global _first_user
        if _first_user is None:
            _first_user = os.getpid()
        elif _first_user != os.getpid():
            raise ForkedProcess(self._url)
        try:
            answer = request()
        except (BaseError, OSError, ValueError) as error:
            raise translate(error, self._url, f"{action} {key}", key, self._worked) from error
        self._worked = True
        return answer
