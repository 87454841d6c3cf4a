"""The encrypted store keeps the contract of a store, over every backend."""

from __future__ import annotations

import pytest

from holdfast.encryption.ring import Ring
from holdfast.encryption.store import EncryptedStore
from holdfast.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.retry import RetryingStore
from holdfast.testing import StoreContract
from store.test_contract import Unreliable


class TestOverFiles(StoreContract):
    racers = 8

    @pytest.fixture
    def store(self, file_store: Store) -> Store:
        return EncryptedStore(file_store, Ring.new())


class TestOverMemory(StoreContract):
    races = 50
    racers = 8

    @pytest.fixture
    def store(self, memory_store: Store) -> Store:
        return EncryptedStore(memory_store, Ring.new())


class TestOverS3(StoreContract):
    ghost_folders = True
    many_keys = 1007

    @pytest.fixture
    def store(self, s3_store: Store) -> Store:
        return EncryptedStore(s3_store, Ring.new())


class TestOverAzure(StoreContract):
    many_keys = 307

    @pytest.fixture
    def store(self, azure_store: Store) -> Store:
        return EncryptedStore(azure_store, Ring.new())


class TestOverAnUnreliableStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return EncryptedStore(RetryingStore(Unreliable(MemoryStore(), seed=7), sleep=lambda _: None), Ring.new())
