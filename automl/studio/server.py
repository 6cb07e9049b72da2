"""Serves the studio with uvicorn until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final

import uvicorn

from automl.errors import UsageError
from automl.ledger import Ledger

from .actions import StudioActions
from .analysis import surrogates_of
from .app import create_app
from .guard import LOOPBACK
from .tokens import Role, Tokens
from .watcher import Watcher

HOST: Final = "127.0.0.1"
STORE: Final = ".automl"
MAX_CONNECTIONS: Final = 900  # more than `MAX_OPEN` of each role and `MAX_IDLE` together
MAX_IDLE: Final = 100  # connections that ask for nothing
IDLE_SECONDS: Final = 10.0  # until a connection that asks for nothing is closed
LOOK_SECONDS: Final = 0.5  # between two looks at them


@dataclass(frozen=True)
class Listening:
    """Where the studio listens.

    Args:
        host, port: port 0 for any free one.
        certificate, key: PEM files for TLS; None for plain HTTP.
    """

    host: str = HOST
    port: int = 0
    certificate: str | None = None
    key: str | None = None


class StudioServer:
    """The studio of one store.

    Args:
        ledger: open for reading; the caller closes it.
        listening: where.
        store: its location as the user wrote it; "" for `STORE`.
        tokens: what the API asks for.

    Raises:
        UsageError: the port cannot be used.
    """

    def __init__(
        self,
        ledger: Ledger,
        listening: Listening | None = None,
        store: str = "",
        tokens: Tokens | None = None,
    ) -> None:
        self.listening = listening or Listening()
        self.tokens = tokens or Tokens.new()
        self.watcher = Watcher(ledger)
        self._socket = _bound(self.listening)
        hosts = LOOPBACK | {_bracketed(self.listening.host), socket.gethostname().lower()}
        self.surrogates = surrogates_of(store or STORE)
        self.actions = StudioActions(store or STORE)
        app = create_app(
            self.watcher, self.surrogates, self.actions, self.tokens, store=store, hosts=hosts
        )
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            ssl_certfile=self.listening.certificate,
            ssl_keyfile=self.listening.key,
        )
        try:
            config.load()
        except OSError as error:
            raise UsageError(f"the files for TLS cannot be used: {error}") from error
        self._server = uvicorn.Server(config)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        scheme = "https" if self.listening.certificate else "http"
        return f"{scheme}://{_bracketed(self.listening.host)}:{self.port}"

    def address(self, path: str = "/", role: Role = Role.OPERATOR) -> str:
        """URL of a page with the token of a role. A fragment is sent to no server."""
        return f"{self.origin}{path}#token={self.tokens.secrets[role]}"

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM."""
        self.watcher.start()
        try:
            asyncio.run(self._serve())
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

    async def _serve(self) -> None:
        try:
            async with _closing_idle(self._server):
                await self._server.serve(sockets=[self._socket])
        finally:
            await self.surrogates.end()
            await self.actions.end()


@contextlib.asynccontextmanager
async def _closing_idle(server: uvicorn.Server) -> AsyncIterator[None]:
    """Close connections that have asked for nothing, or for half of something, for too long.

    Above `MAX_IDLE`, the oldest are closed at once.
    """

    async def look() -> None:
        idle: dict[Any, float] = {}
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = asyncio.get_running_loop().time()
            waiting = {one for one in server.server_state.connections if _asks_nothing(one)}
            idle = {one: idle.get(one, now) for one in waiting}
            oldest = sorted(idle, key=lambda one: idle[one])
            for place, one in enumerate(oldest, MAX_IDLE - len(idle)):
                if place < 0 or now - idle[one] > IDLE_SECONDS:
                    one.transport.close()

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        task.cancel()


def _asks_nothing(connection: Any) -> bool:
    cycle = connection.cycle
    return cycle is None or (cycle.response_complete and not connection.timeout_keep_alive_task)


def _bound(listening: Listening) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((listening.host, listening.port))
        found.listen(128)  # before the address is printed
    except (OSError, OverflowError) as error:
        found.close()
        raise UsageError(
            f"port {listening.port} cannot be used: {error}; omit --port to use a free one"
        ) from error
    found.set_inheritable(False)
    return found


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()
