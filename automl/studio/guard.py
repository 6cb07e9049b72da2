"""What every request passes: the names of the host and the origin, the token, the headers."""

from __future__ import annotations

import hmac
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class Guard:
    """Refuses requests of other sites or without the token; adds headers to all answers.

    Pages and scripts hold no data, so they need no token; everything below `/api/` needs it.

    Args:
        app: answers what is allowed.
        token: the secret of this studio.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        app: ASGIApp = self._app
        if refusal := self._refusal(scope):
            status, error = refusal
            app = JSONResponse({"error": error}, status)
        await app(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name, _, port = host.rpartition(":")
        if (name if port.isdecimal() else host).lower() not in LOOPBACK:
            return 421, "this server does not answer to that host name"
        origin = headers.get("origin")
        elsewhere = origin is not None and origin.partition("://")[2] != host
        if elsewhere or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "requests of other sites are refused"
        given = headers.get("authorization", "").encode()
        if scope["path"].startswith("/api/") and not hmac.compare_digest(given, self._expected):
            return 401, "open the address that automl studio printed: it holds the token"
        return None
