"""The studio's routes: who may ask, pages, scripts, and the API below `/api/`."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from importlib.resources import files
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from automl.core import Begun, Command, Ended, Moved, Noted, Proposed, SweepEvent, ranking
from automl.core.arguments import compact_json, numbered
from automl.core.text import origin_of, violation
from automl.errors import AutomlError, StoreError, UsageError
from automl.report.page import curves
from automl.report.sweep_data import OF_AGENTS, SweepData, in_words
from workers.protocol import LOGS, log_name

from .watcher import Watcher

if TYPE_CHECKING:
    from automl.ledger import Ledger

PAGES: Final = (
    "/",
    "/sweeps/{sweep}",
    "/sweeps/{sweep}/trials",
    "/sweeps/{sweep}/trials/{trial:int}",
)
ASSETS: Final = Path(str(files("automl.report") / "assets"))
VERBS: Final = ("stop", "pause", "enqueue", "set")
STATUSES: Final = {UsageError: 400, StoreError: 503, AutomlError: 409}
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
MAX_POINTS: Final = 2000  # of a curve
MAX_LOG_BYTES: Final = 1 << 18  # of one answer
_LOG: Final = re.compile(r"attempt-(\d+)-rank-(\d+)\.log")


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


def create_app(watcher: Watcher, store: str, token: str, *, option: str = "") -> Guard:
    """The web application.

    Args:
        watcher: follows the store; the caller starts and closes it.
        store: its location; actions open it for writing.
        token: that the API asks for.
        option: the store as the user wrote it, for the shell lines that pages show.
    """
    ledger = watcher.ledger

    def about(answer: Callable[[SweepData, Request], Any]) -> Callable[[Request], Any]:
        """Answers about the sweep of the path."""
        return _json(lambda request: answer(watcher.view(request.path_params["sweep"]), request))

    async def events(request: Request) -> Response:
        """A stream of server-sent events: `?sweep=NAME&since=VERSION&epoch=EPOCH`."""
        found = events_of(watcher, request.query_params.get("sweep", ""), *_since(request))
        return StreamingResponse(found, media_type="text/event-stream")

    sweep, trial = "/api/sweeps/{sweep}", "/api/sweeps/{sweep}/trials/{trial:int}"
    everywhere = {"store": ledger.name, "option": option}
    routes = [
        *(Route(path, _page) for path in PAGES),
        Route("/api/sweeps", _json(lambda _: [entry.line() for entry in ledger.sweeps()])),
        Route("/api/overview", _json(lambda _: {**watcher.overview(), **everywhere})),
        Route(sweep, about(lambda view, _: view.page())),
        Route(
            f"{sweep}/trials",
            about(lambda view, _: [one.summary() for one in view.snapshot.trials]),
        ),
        Route(f"{sweep}/table", about(lambda view, request: view.table(*_since(request)))),
        Route(f"{sweep}/curves", about(partial(_curves, ledger))),
        Route(trial, about(lambda view, r: describe(ledger, view, r.path_params["trial"]))),
        Route(f"{trial}/log", about(partial(_log, ledger))),
        *(Route(f"{sweep}/{verb}", partial(_act, store, verb), methods=["POST"]) for verb in VERBS),
        Route("/api/events", events),
        Mount("/static", StaticFiles(directory=ASSETS)),
    ]
    handlers: Any = {AutomlError: _refused, 404: _missing}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token)


async def _page(request: Request) -> Response:
    return FileResponse(ASSETS / "index.html")


async def _missing(request: Request, error: Exception) -> Response:
    if request.url.path.startswith(("/api/", "/static/")):
        return JSONResponse({"error": f"there is nothing at {request.url.path}"}, 404)
    return FileResponse(ASSETS / "index.html", 404)


def _curves(ledger: Ledger, view: SweepData, request: Request) -> Any:
    """The curves of some trials: `?trials=1,2&metric=loss`."""
    metrics = request.query_params.getlist("metric") or None
    numbers = request.query_params.get("trials", "").split(",")[:24]
    known = ledger.trials(view.name)
    found = [known[int(one)] for one in numbers if one.isdecimal() and int(one) < len(known)]
    return {trial.number: curves(trial, metrics, 120) for trial in found}


def _log(ledger: Ledger, view: SweepData, request: Request) -> Any:
    """A part of the log of a rank: `?attempt=1&rank=0&offset=0`; without an offset, its end."""
    offset = _whole(request, "offset", -1)
    attempt, rank = _whole(request, "attempt", 1), _whole(request, "rank", 0)
    begin = None if offset < 0 else offset
    return read_log(ledger, view.name, request.path_params["trial"], attempt, rank, begin)


def _since(request: Request) -> tuple[int, int]:
    """The version that a page has, and its epoch."""
    return _whole(request, "since", 0), _whole(request, "epoch", 0)


def _json(answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        def made() -> bytes | str:
            found = answer(request)
            return found if isinstance(found, bytes) else compact_json(found)

        return Response(await run_in_threadpool(made), media_type="application/json")

    return endpoint


async def _refused(request: Request, error: Exception) -> Response:
    """An error of ours becomes a message: 503 if the store cannot be read, else 404."""
    return JSONResponse({"error": str(error)}, 503 if isinstance(error, StoreError) else 404)


def _whole(request: Request, name: str, default: int) -> int:
    """A whole number of the query.

    Raises:
        UsageError: it is none.
    """
    text = request.query_params.get(name, str(default))
    try:
        return int(text[:20])
    except ValueError as error:
        raise UsageError(f"{name} must be a whole number, got {text[:40]!r}") from error


# one trial: its curves, attempts, events and logs


def describe(ledger: Ledger, view: SweepData, number: int) -> dict[str, Any]:
    """Everything on the page of a trial.

    Raises:
        UsageError: there is no such trial.
    """
    trial = numbered(ledger.trials(view.name), number)
    records = [one for one in ledger.read(view.name) if one.event.trial == number]
    events = [(one.recorded, one.event) for one in records]
    details = trial.facts
    return {
        **trial.summary(),
        "values": view.values(trial),
        "values_from": [
            ranking.origin(trial, goal, view.snapshot.constraints) for goal in view.snapshot.goals
        ],
        "violation": violation(trial, view.snapshot),
        "started": trial.started,
        "ended": trial.ended,
        "traceback": str(details.pop("traceback", "")),
        "memory_by_module_bytes": details.pop("memory_by_module_bytes", None),
        "estimated_memory_bytes": details.get("estimated_memory_bytes"),
        "details": details,
        "num_reports": len(trial.reports),
        "curves": curves(trial, None, MAX_POINTS),
        "events": [line for at, event in events if (line := _event(at, event))],
        "logs": logs(ledger, view.name, number),
    }


def logs(ledger: Ledger, sweep: str, number: int) -> list[dict[str, Any]]:
    """The logs of a trial's ranks on this machine."""
    folder = ledger.files(sweep) / "trials" / str(number) / LOGS
    try:
        names = folder.names()
    except OSError:
        return []
    matches = [match for name in names if (match := _LOG.fullmatch(name))]
    found = [{"attempt": int(match[1]), "rank": int(match[2])} for match in matches]
    return sorted(found, key=lambda one: (one["attempt"], one["rank"]))


def read_log(
    ledger: Ledger, sweep: str, number: int, attempt: int, rank: int, offset: int | None
) -> dict[str, Any]:
    """A part of a log.

    Args:
        offset: the first byte; None for the end of the log.

    Returns:
        `text`, `begin` and `end` in bytes, and whether there was `more`.
    """
    folder = ledger.files(sweep) / "trials" / str(number) / LOGS
    try:
        with folder.file(log_name(attempt, rank)).open("rb") as file:
            size = file.seek(0, 2)
            begin = max(size - MAX_LOG_BYTES, 0) if offset is None else min(max(offset, 0), size)
            file.seek(begin)
            data = file.read(MAX_LOG_BYTES)
    except OSError as error:
        raise UsageError(
            f"trial {number} has no log of attempt {attempt}, rank {rank} on this machine"
        ) from error
    if begin + len(data) < size and b"\n" in data:
        data = data[: data.rindex(b"\n") + 1]
    end = begin + len(data)
    text = data.decode("utf-8", "replace")
    return {"text": text, "begin": begin, "end": end, "more": end < size}


def _event(recorded: float, event: SweepEvent) -> dict[str, Any]:
    """An event as a line: when, what, and why; empty if it is in the curves already."""
    words, message = "", ""
    match event:
        case Proposed():
            words = f"proposed by {origin_of(event)}"
        case Begun():
            words = f"attempt {event.attempt} began"
        case Ended():
            cause = f" ({event.failure.replace('_', ' ')})" if event.failure else ""
            words = f"attempt {event.outcome.attempt} ended: {event.outcome.ending}{cause}"
            words, message = f"{words}, the trial is {event.state}", event.message
        case Moved():
            words, message = f"the trial is {event.state}", event.reason
        case Noted():
            words, message = event.kind, event.message
        case Command() if event.kind not in OF_AGENTS:
            words = f"{event.by or 'somebody'}: {in_words(event)}"
    return {"recorded": recorded, "words": words, "message": message} if words else {}


# what people do: `POST /api/sweeps/NAME/VERB` with the arguments as JSON


async def _act(store: str, verb: str, request: Request) -> Response:
    content, sweep = await request.body(), request.path_params["sweep"]
    try:
        found = await run_in_threadpool(perform, store, sweep, verb, content)
    except AutomlError as error:
        status = next(code for kind, code in STATUSES.items() if isinstance(error, kind))
        return JSONResponse({"error": str(error)}, status)
    return Response(compact_json(found), media_type="application/json")


def perform(store: str, sweep: str, verb: str, content: bytes) -> Any:
    """Do what a request asks for; the answer as plain data.

    Raises:
        UsageError: the body or an argument is wrong, or there is no such sweep or trial.
        AutomlError: the state of the sweep or the trial does not allow it.
    """
    from automl.ledger import Ledger
    from automl.workflows import steering  # it loads what a controller needs

    functions: Mapping[str, Callable[..., Any]] = {
        "stop": steering.stop,
        "pause": steering.pause,
        "enqueue": steering.enqueue,
        "set": steering.change,
    }
    function = functions[verb]
    given = _arguments(function, content)
    with closing(Ledger.open(store)) as ledger:
        done = function(ledger, sweep, **given)
    return {"done": done} if isinstance(done, str) else done


def _arguments(function: Callable[..., Any], content: bytes) -> dict[str, Any]:
    try:
        given = json.loads(content or b"{}")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is not JSON: {error}") from error
    taken = {name: one for name, one in signature(function).parameters.items() if name != "ledger"}
    taken.pop("sweep")
    needed = {name for name, one in taken.items() if one.default is Parameter.empty}
    if not isinstance(given, dict) or not needed <= set(given) <= set(taken):
        least = f", at least {', '.join(sorted(needed))}" if needed else ""
        raise UsageError(f"the body is an object with {', '.join(taken)}{least}")
    return given


# the stream of server-sent events


async def events_of(watcher: Watcher, sweep: str, since: int, epoch: int) -> AsyncIterator[bytes]:
    """Events: which sweeps have changed, and what has changed in one of them.

    A page that follows a sweep gets its new state with the event and need not ask for it. The
    state is encoded once for all who follow it.

    Args:
        sweep: the one that the page shows; "" for none.
        since, epoch: version and epoch of the table of trials that the page has.
    """
    with watcher.followed():
        counts, error = watcher.counts(), watcher.error
        message: dict[str, Any] = {"hello": True, "changed": [sweep][: len(sweep)], "error": error}
        while True:
            news = b""
            if sweep and sweep in message["changed"]:
                with suppress(AutomlError):  # deleted or damaged: the page asks, and is told
                    view = await run_in_threadpool(watcher.view, sweep)
                    page, table, since, epoch = view.update(since, epoch)
                    news = b',"page":' + page + b',"table":' + table
            yield b"data: " + compact_json(message).encode()[:-1] + news + b"}\n\n"
            before = counts, error
            while (counts, error) == before:
                await asyncio.sleep(watcher.interval / 2)
                counts, error = watcher.counts(), watcher.error
            changed = [name for name, count in counts.items() if count != before[0].get(name)]
            message = {"changed": sorted(changed), "error": error}
