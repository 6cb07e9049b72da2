"""What people do from a page: `POST /api/sweeps/NAME/VERB` with the arguments as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from inspect import Parameter, signature
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from automl.core.plain_data import compact_json
from automl.errors import AutomlError, StoreError, UsageError

VERBS: Final = ("stop", "pause", "enqueue", "set")
MAX_BYTES: Final = 1 << 20  # of a body
STATUSES: Final = {UsageError: 400, StoreError: 503, AutomlError: 409}


def action_routes(store: str) -> list[Route]:
    """The routes that act on the sweeps of a store."""

    def route(verb: str) -> Route:
        async def act(request: Request) -> Response:
            content = await request.body()
            sweep = request.path_params["sweep"]
            try:
                found = await run_in_threadpool(perform, store, sweep, verb, content)
            except AutomlError as error:
                status = next(code for kind, code in STATUSES.items() if isinstance(error, kind))
                return JSONResponse({"error": str(error)}, status)
            return Response(compact_json(found), media_type="application/json")

        return Route(f"/api/sweeps/{{sweep}}/{verb}", act, methods=["POST"])

    return [route(verb) for verb in VERBS]


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
    if len(content) > MAX_BYTES:
        raise UsageError(f"a body has at most {MAX_BYTES} bytes, got {len(content)}")
    try:
        given = json.loads(content or b"{}")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is not JSON: {error}") from error
    taken = {name: one for name, one in signature(function).parameters.items() if name != "ledger"}
    taken.pop("sweep")
    if not isinstance(given, dict) or set(given) - set(taken):
        raise UsageError(f"the body is an object with {', '.join(taken)}")
    needed = {name for name, one in taken.items() if one.default is Parameter.empty}
    if missing := sorted(needed - set(given)):
        raise UsageError(f"the body lacks {', '.join(missing)}")
    return given
