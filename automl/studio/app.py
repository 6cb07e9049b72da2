"""The routes of the studio: pages, scripts, and the API below `/api/`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from functools import partial, reduce
from operator import truediv
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from automl.core.plain_data import compact_json
from automl.errors import AutomlError, StoreError, UsageError
from automl.report.page import curves

from . import stream, trial_page
from .actions import action_routes
from .guard import Guard
from .static_files import StaticFiles
from .watcher import Watcher

if TYPE_CHECKING:
    from automl.ledger import Ledger
    from automl.report.sweep_data import SweepData

PAGES: Final = (
    "/",
    "/sweeps/{sweep}",
    "/sweeps/{sweep}/trials",
    "/sweeps/{sweep}/trials/{trial:int}",
)


def create_app(watcher: Watcher, store: str, token: str, *, option: str = "") -> Guard:
    """The web application.

    Args:
        watcher: follows the store; the caller starts and closes it.
        store: its location; actions open it for writing.
        token: that the API asks for.
        option: the store as the user wrote it, for the shell lines that pages show.
    """
    ledger, static = watcher.ledger, StaticFiles()

    async def page(request: Request) -> Response:
        return static.file("index.html", request.headers.get("if-none-match", ""))

    async def missing(request: Request, error: Exception) -> Response:
        if request.url.path.startswith(("/api/", "/static/")):
            return JSONResponse({"error": f"there is nothing at {request.url.path}"}, 404)
        return static.file("index.html", status=404)

    def about(answer: Callable[[SweepData, Request], Any]) -> Callable[[Request], Any]:
        """Answers about the sweep of the path."""
        return _json(lambda request: answer(watcher.view(request.path_params["sweep"]), request))

    async def file(request: Request) -> Response:
        """A file of a trial, to download."""
        view = await run_in_threadpool(watcher.view, request.path_params["sweep"])
        found = await run_in_threadpool(_opened, ledger, view, request)
        headers = {"Content-Disposition": "attachment", "Content-Type": "application/octet-stream"}
        return StreamingResponse(_chunks(found), headers=headers)

    async def events(request: Request) -> Response:
        """A stream of server-sent events: `?sweep=NAME&since=VERSION&epoch=EPOCH`."""
        found = stream.events(watcher, request.query_params.get("sweep", ""), *_since(request))
        return StreamingResponse(found, media_type="text/event-stream")

    sweep, trial = "/api/sweeps/{sweep}", "/api/sweeps/{sweep}/trials/{trial:int}"
    everywhere = {"store": ledger.name, "option": option}
    routes = [
        *(Route(path, page) for path in PAGES),
        Route("/api/sweeps", _json(lambda _: [asdict(entry.info) for entry in watcher.heads()])),
        Route("/api/overview", _json(lambda _: {**watcher.overview(), **everywhere})),
        Route(sweep, about(lambda view, _: view.page(option))),
        Route(f"{sweep}/trials", about(lambda view, _: [one.summary() for one in view.trials()])),
        Route(f"{sweep}/table", about(lambda view, request: view.table(*_since(request)))),
        Route(f"{sweep}/curves", about(partial(_curves, ledger))),
        Route(trial, about(partial(_trial, ledger))),
        Route(f"{trial}/log", about(partial(_log, ledger))),
        Route(f"{trial}/files/{{path:path}}", file),
        *action_routes(store),
        Route("/api/events", events),
        Route("/static/{path:path}", static.answer),
    ]
    handlers: Any = {AutomlError: _refused, 404: missing}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token)


def _curves(ledger: Ledger, view: SweepData, request: Request) -> Any:
    """The curves of some trials: `?trials=1,2&metric=loss`."""
    metrics = request.query_params.getlist("metric") or None
    numbers = request.query_params.get("trials", "").split(",")[:24]
    trials = [ledger.trial(view.name, int(one)) for one in numbers if one.isdecimal()]
    return {trial.number: curves(trial, metrics, 120) for trial in trials if trial}


def _trial(ledger: Ledger, view: SweepData, request: Request) -> Any:
    """The page of a trial."""
    return trial_page.describe(ledger, view, request.path_params["trial"])


def _log(ledger: Ledger, view: SweepData, request: Request) -> Any:
    """A part of the log of a rank: `?attempt=1&rank=0&offset=0`; without an offset, its end."""
    offset = _whole(request, "offset", -1)
    attempt, rank = _whole(request, "attempt", 1), _whole(request, "rank", 0)
    begin = None if offset < 0 else offset
    return trial_page.read_log(
        ledger, view.name, request.path_params["trial"], attempt, rank, begin
    )


def _opened(ledger: Ledger, view: SweepData, request: Request) -> Any:
    """The file of a trial that the path names, open."""
    trial, path = request.path_params["trial"], request.path_params["path"]
    *folders, name = path.split("/")
    try:
        folder = ledger.files(view.name) / "trials" / str(trial)
        return reduce(truediv, folders, folder).open(name)
    except (OSError, StoreError) as error:  # StoreError: a link, or a name such as ".."
        raise UsageError(f"trial {trial} has no file {path}") from error


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


async def _chunks(file: Any) -> AsyncIterator[bytes]:
    with file:
        while data := await run_in_threadpool(file.read, 1 << 18):
            yield data


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
