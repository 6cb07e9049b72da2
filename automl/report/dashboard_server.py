"""Serves the dashboard on the loopback interface; a token is needed to read it."""

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

from .dashboard import Dashboard
from .page import asset, plotly_js

HOST: Final = "127.0.0.1"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the first address holds the token
    "Cache-Control": "no-store",
}


class DashboardServer(ThreadingHTTPServer):
    """Serves the dashboard of one sweep.

    Args:
        port: 0 for any free one.

    Raises:
        UsageError: the port cannot be used, or plotly is not installed.
    """

    daemon_threads = True

    def __init__(self, dashboard: Dashboard, port: int = 0) -> None:
        self.dashboard = dashboard
        self.token = secrets.token_urlsafe(24)
        self.library = plotly_js().encode()
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"port {port} cannot be used: {error}; omit --port to use a free one"
            ) from error
        self.cookie = f"automl-{self.server_address[1]}"

    @property
    def address(self) -> str:
        """The page's URL with its token."""
        return f"http://{HOST}:{self.server_address[1]}/?token={self.token}"


@contextmanager
def serving(dashboard: Dashboard, port: int = 0) -> Iterator[DashboardServer]:
    """A server that answers until the block ends."""
    server = DashboardServer(dashboard, port)
    thread = Thread(target=server.serve_forever, name="automl-dashboard", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: DashboardServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        given = parse_qs(url.query).get("token", [""])[0]
        if url.path == "/" and self._is_token(given):
            self._greet()
        elif not self._is_token(self._cookie()):
            self._send(
                HTTPStatus.FORBIDDEN,
                "text/plain",
                b"open the address that automl dashboard printed\n",
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
            self._send(HTTPStatus.OK, "application/json", self.server.dashboard.state.encode())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"page not found\n")

    def _greet(self) -> None:
        """Move the token from the address bar to a cookie."""
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
        """Print nothing: the first request holds the token."""
