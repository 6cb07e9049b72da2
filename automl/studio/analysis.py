"""The routes whose answers need models or tests, which a process of its own makes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from automl.core.plain_data import compact_json
from automl.errors import UsageError

from .child import ChildProcess

ANSWER_SECONDS: Final = 300.0
SILENT: Final = "the surrogates did not answer: ask again, or look at `automl report`"
Question = dict[str, Any]
Ask = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


def surrogates_of(location: str) -> ChildProcess:
    """The process that fits and asks the surrogates of a store. One that hangs is killed."""
    module = "automl.studio.surrogate_process"
    return ChildProcess(module, location, ANSWER_SECONDS, SILENT, is_killed=True)


def analysis_routes(ask: Ask) -> list[Route]:
    """The routes; `ask` sends a question to the process of surrogates."""

    def route(path: str, question: Callable[[Request], Question]) -> Route:
        async def endpoint(request: Request) -> Response:
            complete = {**request.path_params, **question(request)}
            return Response(compact_json(await ask(complete)), media_type="application/json")

        return Route(path, endpoint)

    return [
        route("/api/sweeps/{sweep}/insights", lambda request: {"ask": "insights"}),
        route("/api/sweeps/{sweep}/recommended", lambda request: {"ask": "recommended"}),
        route("/api/sweeps/{sweep}/trials/{trial:int}/why", lambda request: {"ask": "why"}),
        route("/api/sweeps/{sweep}/predict", _predict),
        route("/api/sweeps/{sweep}/contours", _contours),
    ]


def _predict(request: Request) -> Question:
    """Predictions for a configuration: `?params={"lr":0.1}`."""
    try:
        params = json.loads(request.query_params.get("params", ""))
    except (ValueError, RecursionError):
        params = None
    if not isinstance(params, dict):
        raise UsageError("params must be the JSON of a configuration")
    return {"ask": "predict", "params": params}


def _contours(request: Request) -> Question:
    """A metric over two parameters: `?metric=loss&x=lr&y=batch_size`."""
    chosen = {name: request.query_params.get(name, "") for name in ("metric", "x", "y")}
    return {"ask": "contours", **chosen}
