"""A PostgreSQL server of a test's own, where its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

_FOLDERS = [
    *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
    Path("/usr/local/bin"),
]


def missing() -> str | None:
    """Why there can be no server here; None where there can."""
    if _program("initdb") is None or _program("pg_ctl") is None:
        return "PostgreSQL's server programs (initdb, pg_ctl) are not installed"
    if find_spec("psycopg") is None:
        return "the package psycopg is not installed"
    if os.geteuid() == 0 and _other_user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres or nobody"
    return None


class PostgresServer:
    """A server that listens on a free port of the loopback interface; its data is in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        user = _other_user()
        self._demote = (
            ["setpriv", f"--reuid={user}", "--clear-groups", f"--regid={user}"] if user else []
        )
        if user:
            shutil.chown(folder, user, user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run(
            "initdb",
            "-D",
            str(folder / "data"),
            "-U",
            "automl",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
        )
        settings = (
            f"\nport={self.port}\nlisten_addresses='127.0.0.1'\n"
            "unix_socket_directories=''\nfsync=off\n"
        )
        file = folder / "data" / "postgresql.conf"
        file.write_text(file.read_text() + settings + "max_connections=60\n")
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._run(
            "pg_ctl",
            "-D",
            str(self.folder / "data"),
            "-l",
            str(self.folder / "log"),
            "-w",
            "-t",
            "60",
            "start",
        )

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; "immediate" as a crash would."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def database(self) -> str:
        """The URL of a new and empty database."""
        import psycopg

        name = f"test{time.monotonic_ns()}"
        with psycopg.connect(f"{self._url}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"{self._url}/{name}"

    @property
    def _url(self) -> str:
        return f"postgresql://automl@127.0.0.1:{self.port}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._demote, str(_program(program)), *arguments]
        with (self.folder / "commands").open(
            "a"
        ) as log:  # a pipe would stay open as long as the server
            subprocess.run(
                command, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )


@contextmanager
def server() -> Iterator[PostgresServer]:
    """A server that ends with the block, in a folder that another user than root can reach."""
    folder = Path(tempfile.mkdtemp(prefix="automl-postgres-"))
    try:
        running = PostgresServer(folder)
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(folder)


def _program(name: str) -> str | None:
    return next((str(f / name) for f in _FOLDERS if (f / name).is_file()), None) or shutil.which(
        name
    )


def _other_user() -> str | None:
    """Whom the server runs as where we are root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(
        (name for name in ("postgres", "nobody") if name in known and shutil.which("setpriv")), None
    )
