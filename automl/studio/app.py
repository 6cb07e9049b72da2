"""The routes of the studio: pages, scripts, and the API below `/api/`."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from functools import reduce
from operator import truediv
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from automl.errors import AutomlError, StoreError, UsageError

from . import stream, trial_page
from .actions import StudioActions
from .analysis import analysis_routes
from .encoding import encoded
from .guard import LOOPBACK, Guard
from .openapi import document
from .static_files import StaticFiles
from .surrogates import SurrogateQueries
from .tokens import Tokens
from .watcher import Watcher

PAGES: Final = (
    "/",
    "/compare",
    "/sweeps/{sweep}",
    "/sweeps/{sweep}/trials",
    "/sweeps/{sweep}/trials/{trial:int}",
    "/sweeps/{sweep}/understand",
    "/openapi",
)


def create_app(
    watcher: Watcher,
    surrogates: SurrogateQueries,
    actions: StudioActions,
    tokens: Tokens,
    *,
    store: str = "",
    hosts: frozenset[str] = LOOPBACK,
) -> Guard:
    """The web application.

    Args:
        watcher: follows the store; the caller starts and closes it.
        surrogates: asked by the page Understand; the caller closes them.
        actions: act; the caller ends them.
        tokens: what the API asks for.
        store: as the user wrote it, for the shell lines that pages show.
        hosts: names under which the server may be called.
    """
    api = _Api(watcher, store)
    static = StaticFiles()

    async def page(request: Request) -> Response:
        return static.file("index.html", request.headers.get("if-none-match", ""))

    async def missing(request: Request, error: Exception) -> Response:
        if request.url.path.startswith(("/api/", "/static/")):
            return JSONResponse({"error": f"there is nothing at {request.url.path}"}, 404)
        return static.file("index.html", status=404)

    routes = [
        *(Route(path, page) for path in PAGES),
        Route("/api/sweeps", _json(api.sweeps)),
        Route("/api/overview", _json(api.overview)),
        Route("/api/sweeps/{sweep}", _json(api.sweep)),
        Route("/api/sweeps/{sweep}/trials", _json(api.trials)),
        Route("/api/sweeps/{sweep}/table", _json(api.table)),
        Route("/api/sweeps/{sweep}/curves", _json(api.curves)),
        Route("/api/sweeps/{sweep}/trials/{trial:int}", _json(api.trial)),
        Route("/api/sweeps/{sweep}/trials/{trial:int}/log", _json(api.log)),
        Route("/api/sweeps/{sweep}/trials/{trial:int}/files/{path:path}", api.file),
        *analysis_routes(surrogates.ask),
        *actions.routes(api.exists),
        Route("/api/role", _json(api.role)),
        Route("/api/events", api.events),
        Route("/openapi.json", _json(lambda request: document())),
        Route("/static/{path:path}", static.answer),
    ]
    handlers: Any = {AutomlError: _refused, 404: missing}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), tokens, hosts)


class _Api:
    """Answers with plain data. What may read the store runs in a thread."""

    def __init__(self, watcher: Watcher, store: str) -> None:
        self._watcher = watcher
        self._ledger = watcher.ledger
        self._store = store

    def sweeps(self, request: Request) -> Any:
        """The JSON of `automl list`."""
        return [dataclasses.asdict(entry.info) for entry in self._watcher.heads()]

    def exists(self, name: str) -> bool:
        """Whether there is a sweep of the name."""
        return any(entry.info.name == name for entry in self._watcher.heads())

    def role(self, request: Request) -> Any:
        """What the bearer of the token may do."""
        return {"role": request.state.role}

    def overview(self, request: Request) -> Any:
        """Every sweep with its line on the first page."""
        return {**self._watcher.overview(), "store": self._ledger.name, "option": self._store}

    def sweep(self, request: Request) -> Any:
        """The page of a sweep."""
        return self._watcher.view(request.path_params["sweep"]).page(self._store)

    def trials(self, request: Request) -> Any:
        """The JSON of `automl trials`."""
        view = self._watcher.view(request.path_params["sweep"])
        return [trial.summary() for trial in view.trials()]

    def table(self, request: Request) -> Any:
        """The trials that have changed since the version that a page has."""
        view = self._watcher.view(request.path_params["sweep"])
        return view.table(_whole(request, "since", 0), _whole(request, "epoch", 0))

    def curves(self, request: Request) -> Any:
        """The curves of some trials: `?trials=1,2&metric=loss`."""
        view = self._watcher.view(request.path_params["sweep"])
        metrics = request.query_params.getlist("metric") or None
        numbers = request.query_params.get("trials", "").split(",")[:24]
        trials = [self._ledger.trial(view.name, int(one)) for one in numbers if one.isdecimal()]
        return {trial.number: trial_page.curves(trial, metrics) for trial in trials if trial}

    def trial(self, request: Request) -> Any:
        """The page of a trial."""
        view = self._watcher.view(request.path_params["sweep"])
        return trial_page.describe(self._ledger, view, request.path_params["trial"])

    def log(self, request: Request) -> Any:
        """A part of the log of a rank."""
        name, number = request.path_params["sweep"], request.path_params["trial"]
        self._watcher.view(name)
        attempt, rank = _whole(request, "attempt", 1), _whole(request, "rank", 0)
        offset = _whole(request, "offset", -1)
        begin = None if offset < 0 else offset
        return trial_page.read_log(self._ledger, name, number, attempt, rank, begin)

    async def file(self, request: Request) -> Response:
        """A file of a trial, to download."""
        *folders, name = request.path_params["path"].split("/")
        sweep, number = request.path_params["sweep"], request.path_params["trial"]

        def opened() -> Any:
            self._watcher.view(sweep)
            try:
                folder = self._ledger.files(sweep) / "trials" / str(number)
                return reduce(truediv, folders, folder).open(name)
            except (OSError, StoreError) as error:  # StoreError: a link, or a name such as ".."
                path = request.path_params["path"]
                raise UsageError(f"trial {number} has no file {path}") from error

        file = await run_in_threadpool(opened)
        headers = {"Content-Disposition": "attachment", "Content-Type": "application/octet-stream"}
        return StreamingResponse(_chunks(file), headers=headers)

    async def events(self, request: Request) -> Response:
        """A stream of server-sent events: `?sweep=NAME&since=VERSION&epoch=EPOCH`."""
        sweep = request.query_params.get("sweep", "")
        since, epoch = _whole(request, "since", 0), _whole(request, "epoch", 0)
        found = stream.events(self._watcher, sweep, since, epoch)
        return StreamingResponse(found, media_type="text/event-stream")


def _json(answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        def made() -> bytes:
            found = answer(request)
            return found if isinstance(found, bytes) else encoded(found)

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
