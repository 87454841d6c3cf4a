"""Every backend keeps the contract of a store."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.store import Store, open_store
from holdfast.store.file import FileStore
from holdfast.store.memory import MemoryStore
from holdfast.store.retry import RetryingStore, Transient
from holdfast.testing import StoreContract
from holdfast.testing.faults import Around

T = TypeVar("T")


class TestFile(StoreContract):
    races = 50
    racers = 16

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return FileStore(tmp_path / "made" / "at first write")


class TestMemory(StoreContract):
    races = 200
    racers = 16

    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestS3(StoreContract):
    ghost_folders = True

    @pytest.fixture
    def store(self, s3_store: Store) -> Store:
        return s3_store


class TestAzure(StoreContract):
    @pytest.fixture
    def store(self, azure_store: Store) -> Store:
        return azure_store


@pytest.mark.gcs
class TestGoogle(StoreContract):
    many_keys = 300

    @pytest.fixture
    def store(self) -> Store:
        return open_store(f"{os.environ['HOLDFAST_TEST_GCS_URL']}/t-{uuid.uuid4().hex}")


class Unreliable(Around):
    """Fails every third operation or so: before it took effect, or after it when the reply is what is lost."""

    def __init__(self, store: Store, seed: int) -> None:
        super().__init__(store)
        self._random = random.Random(seed)

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        fate = self._random.random()
        if fate < 0.2:
            raise Transient("lost on the way there", may_have_landed=False)
        answer = act()
        if fate < 0.4 and verb != "write":
            raise Transient("lost on the way back")
        return answer


class TestRetryingOverAnUnreliableStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return RetryingStore(Unreliable(MemoryStore(), seed=7), sleep=lambda _: None)
