"""The live page on the loopback interface, for whoever has its token."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from string import Template
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from automl.errors import UsageError

from .board import Board
from .page import asset, plotly_js

HOST: Final = "127.0.0.1"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address of the first visit holds the token
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    """Serves one board.

    Args:
        board: what is shown; port: 0 for any that is free.

    Raises:
        UsageError: the port cannot be had, or plotly is not installed.
    """

    daemon_threads = True

    def __init__(self, board: Board, port: int = 0) -> None:
        self.board, self.token, self.library = (
            board,
            secrets.token_urlsafe(24),
            plotly_js().encode(),
        )
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"port {port} cannot be used: {error}; leave --port away for a free one"
            ) from error
        self.cookie = f"automl-{self.server_address[1]}"

    @property
    def address(self) -> str:
        """The page's URL with its token."""
        return f"http://{HOST}:{self.server_address[1]}/?token={self.token}"


@contextmanager
def serving(board: Board, port: int = 0) -> Iterator[Server]:
    """A server that answers until the block ends."""
    server = Server(board, port)
    thread = Thread(target=server.serve_forever, name="automl-dashboard", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        given = parse_qs(url.query).get("token", [""])[0]
        if url.path == "/" and self._is_token(given):
            self._greet()
        elif not self._is_token(self._cookie()):
            self._send(
                HTTPStatus.FORBIDDEN,
                "text/plain",
                b"open the address that automl dashboard has printed\n",
            )
        elif url.path == "/":
            page = Template(asset("live.html")).substitute(
                css=asset("page.css"), js=asset("live.js")
            )
            self._send(HTTPStatus.OK, "text/html", page.encode())
        elif url.path == "/plotly.js":
            self._send(
                HTTPStatus.OK,
                "text/javascript",
                self.server.library,
                {"Cache-Control": "max-age=86400"},
            )
        elif url.path == "/state":
            self._send(HTTPStatus.OK, "application/json", self.server.board.state.encode())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page\n")

    def _greet(self) -> None:
        """Keep the token in a cookie, so that it does not stay in the address bar."""
        cookie = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
        self._send(HTTPStatus.SEE_OTHER, "text/plain", b"", {"Location": "/", "Set-Cookie": cookie})

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return ""
        return found.value if found else ""

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.server.token.encode())

    def _send(
        self, status: HTTPStatus, kind: str, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not printed: the first one holds the token."""
