"""The routes whose answers need models or tests, which a process of its own makes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from automl.errors import UsageError

from .encoding import encoded

MAX_COMPARED: Final = 6
Question = dict[str, Any]
Ask = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


def analysis_routes(ask: Ask) -> list[Route]:
    """The routes; `ask` sends a question to the process of surrogates."""

    def route(path: str, question: Callable[[Request], Question]) -> Route:
        async def endpoint(request: Request) -> Response:
            complete = {**request.path_params, **question(request)}
            return Response(encoded(await ask(complete)), media_type="application/json")

        return Route(path, endpoint)

    return [
        route("/api/sweeps/{sweep}/insights", lambda request: {"ask": "insights"}),
        route("/api/sweeps/{sweep}/trials/{trial:int}/why", lambda request: {"ask": "why"}),
        route("/api/sweeps/{sweep}/predict", _predict),
        route("/api/sweeps/{sweep}/contours", _contours),
        route("/api/difference", _difference),
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


def _difference(request: Request) -> Question:
    """Whether a difference is more than noise: `?sweeps=a&sweeps=b` or `?trials=a:3&...`."""
    sweeps = request.query_params.getlist("sweeps")
    trials = request.query_params.getlist("trials")
    if not 2 <= len(sweeps or trials) <= MAX_COMPARED:
        raise UsageError(f"compare 2 to {MAX_COMPARED} sweeps or trials")
    pairs = [(name, digits) for name, _, digits in (one.rpartition(":") for one in trials)]
    wrong = [one for one, (_, digits) in zip(trials, pairs, strict=True) if not _whole(digits)]
    if wrong:
        raise UsageError(f"a trial is SWEEP:NUMBER, got {wrong[0][:80]!r}")
    chosen = [(name, int(digits)) for name, digits in pairs]
    return {"ask": "difference", "sweeps": sweeps, "trials": chosen}


def _whole(digits: str) -> bool:
    return digits.isascii() and digits.isdecimal() and len(digits) < 12
