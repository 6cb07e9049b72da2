"""Serves the studio with uvicorn until Ctrl-C."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Final

import uvicorn

from automl.errors import UsageError
from automl.ledger import Ledger

from .app import create_app
from .watcher import Watcher

HOST: Final = "127.0.0.1"
STORE: Final = ".automl"


class StudioServer:
    """The studio of one store, for this machine only.

    Args:
        ledger: open for reading; the caller closes it.
        port: 0 for any free one.
        store: its location as the user wrote it; "" for `STORE`.

    Raises:
        UsageError: the port cannot be used.
    """

    def __init__(self, ledger: Ledger, port: int = 0, store: str = "") -> None:
        self.token = secrets.token_urlsafe(24)
        self.watcher = Watcher(ledger, store or STORE)
        self._socket = _bound(port)
        app = create_app(self.watcher, store or STORE, self.token, option=store)
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://{HOST}:{self.port}"

    def address(self, path: str = "/") -> str:
        """URL of a page with the token. A fragment is sent to no server."""
        return f"{self.origin}{path}#token={self.token}"

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM."""
        self.watcher.start()
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        except KeyboardInterrupt:  # uvicorn raises it again after it has ended
            return
        finally:
            self.watcher.close()

    @contextmanager
    def in_thread(self) -> Iterator[StudioServer]:
        """Serve in a thread until the block ends."""
        thread = Thread(target=self.run, name="automl-studio-server", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.should_exit = True
            thread.join(timeout=30)


def _bound(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(128)  # before the address is printed
    except (OSError, OverflowError) as error:
        found.close()
        raise UsageError(
            f"port {port} cannot be used: {error}; omit --port to use a free one"
        ) from error
    found.set_inheritable(False)
    return found
