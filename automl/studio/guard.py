"""What every request passes: the names of the host and the origin, the token, the headers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, MutableMapping
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .tokens import Role, Tokens

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
MAX_REQUESTS: Final = 600  # of data by a role of a client in `WINDOW_SECONDS`; a page makes 40
MAX_OPEN: Final = 200  # requests of one role at the same time; a page has a stream of events
MAX_FILES: Final = 3000  # pages and scripts, in the same time; a page has 25 scripts
MAX_REFUSED: Final = 30  # requests without a valid token, in the same time
WINDOW_SECONDS: Final = 10.0


class Guard:
    """Refuses requests of other sites, without a token, or too many; adds headers to all answers.

    Pages and scripts hold no data, so they need no token; everything below `/api/` needs one.

    Args:
        app: answers what is allowed; it finds the role in `scope["state"]["role"]`.
        tokens: of the roles.
        hosts: names under which the server may be called, without ports.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, hosts: Iterable[str] = LOOPBACK) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = frozenset(hosts)
        self._data, self._files = _Counter(), _Counter()
        self._open: Counter[Role] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        if refusal := self._refusal(scope):
            status, error = refusal
            await JSONResponse({"error": error}, status)(scope, receive, with_headers)
        elif (role := scope.get("state", {}).get("role")) is None:
            await self._app(scope, receive, with_headers)
        else:
            self._open[role] += 1
            try:
                await self._app(scope, receive, with_headers)
            finally:
                self._open[role] -= 1

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        client = scope["client"][0] if scope.get("client") else ""
        host = headers.get("host", "")
        if _without_port(host) not in self._hosts:
            return 421, "this server does not answer to that host name"
        origin = headers.get("origin")
        elsewhere = origin is not None and origin.partition("://")[2] != host
        if elsewhere or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "requests of other sites are refused"
        if not scope["path"].startswith("/api/"):
            allowed = self._files.admits(client, MAX_FILES)
            return None if allowed else (429, "too many requests: wait 10 s")
        role = self._tokens.role(headers.get("authorization", ""))
        whose = f"{role} {client}"  # people behind one tunnel have the same address
        if not self._data.admits(whose, MAX_REQUESTS, refused=role is None):
            return 429, "too many requests: wait 10 s"
        if role is None:
            return 401, "open the address that automl studio printed: it holds the token"
        if self._open[role] >= MAX_OPEN:
            return 429, f"too many requests of a {role} at once: close pages that show the studio"
        scope.setdefault("state", {})["role"] = role
        return None


class _Counter:
    """Counts the requests of each client in a window of time."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int, int]] = {}

    def admits(self, client: str, most: int, *, refused: bool = False) -> bool:
        """Count a request; False if its client has made more than `most`."""
        now = time.monotonic()
        begun, total, wrong = self._counts.get(client, (now, 0, 0))
        if now - begun > WINDOW_SECONDS:
            begun, total, wrong = now, 0, 0
            if len(self._counts) > 1000:
                self._counts.clear()
        total, wrong = total + 1, wrong + refused
        self._counts[client] = begun, total, wrong
        return total <= most and (not refused or wrong <= MAX_REFUSED)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()
