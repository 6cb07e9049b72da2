"""The routes that act: each checks role and body, and lets the process of actions do the rest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from automl.actions import OPERATIONS
from automl.actions.action import Action, Operation
from automl.actions.agents import MAX_WAIT
from automl.core.plain_data import compact_json
from automl.errors import AutomlError, StoreError, UsageError

from .bodies import body_of
from .child import ChildProcess, SilentError

MAX_BYTES: Final = 1 << 20  # of a body
BODY_SECONDS: Final = 10.0  # for a body to arrive
ANSWER_SECONDS: Final = MAX_WAIT + 30.0  # without a controller, a suggester is loaded first
MAX_PENDING: Final = 100
MAX_PROBLEMS: Final = 5  # that one message names
MAX_MESSAGE: Final = 2000  # characters
IDLE_SECONDS: Final = 3600.0
STATUSES: Final = {SilentError: 504, UsageError: 400, StoreError: 503, AutomlError: 409}
SILENT: Final = "there was no answer in time: look whether it was done, then try again"


class RefusedError(Exception):
    """A request that is refused with this HTTP status; the application answers with it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class StudioActions:
    """Acts on the sweeps of one store.

    Args:
        location: of the store, as `Ledger.open` takes it.
    """

    def __init__(self, location: str) -> None:
        module = "automl.studio.action_process"
        self._child = ChildProcess(module, location, ANSWER_SECONDS, SILENT, IDLE_SECONDS)
        self._pending = 0

    async def end(self) -> None:
        """End the process."""
        await self._child.end()

    def routes(self, exists: Callable[[str], bool]) -> list[Route]:
        """The routes of every operation.

        Args:
            exists: whether there is a sweep of a name.
        """
        return [
            Route(
                operation.route.replace("{trial}", "{trial:int}"),
                partial(self._act, action, operation, exists),
                methods=["POST"],
            )
            for action, operation in OPERATIONS.values()
        ]

    async def _act(
        self,
        action: Action,
        operation: Operation,
        exists: Callable[[str], bool],
        request: Request,
    ) -> Response:
        role = request.state.role
        if role != action.role:
            raise RefusedError(403, f"this needs the token of the {action.role}, not of the {role}")
        body = checked(body_of(operation.name), await _body(request))
        sweep = request.path_params["sweep"]
        if not await asyncio.to_thread(exists, sweep):
            raise RefusedError(404, f"there is no sweep named {sweep!r}")
        if action.role == "agent" and not body.get("agent"):
            body["agent"] = f"agent@{request.client.host if request.client else 'unknown'}"
        question = {
            "operation": operation.name,
            "sweep": sweep,
            "trial": request.path_params.get("trial"),
            "body": body,
        }
        if self._pending >= MAX_PENDING:
            raise RefusedError(503, f"{MAX_PENDING} requests wait already: try again later")
        self._pending += 1
        try:
            found = await self._child.ask(question)
        except AutomlError as error:
            status = next(code for kind, code in STATUSES.items() if isinstance(error, kind))
            raise RefusedError(status, str(error)) from error
        finally:
            self._pending -= 1
        return Response(compact_json(found), media_type="application/json")


async def _body(request: Request) -> bytes:
    """The body of a request; it is JSON, and neither long nor slow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusedError(415, "the body must have Content-Type: application/json")
    too_long = RefusedError(413, f"a body has at most {MAX_BYTES} bytes")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > MAX_BYTES:
        raise too_long
    body = bytearray()

    async def read() -> None:
        async for part in request.stream():
            body.extend(part)
            if len(body) > MAX_BYTES:
                raise too_long

    try:
        await asyncio.wait_for(read(), BODY_SECONDS)
    except TimeoutError as error:
        raise RefusedError(408, f"the body did not arrive within {BODY_SECONDS:g} s") from error
    except ClientDisconnect as error:
        raise RefusedError(400, "the connection was closed") from error
    return bytes(body)


def checked(schema: type[BaseModel], content: bytes) -> dict[str, Any]:
    """The fields of a body that were given; raises RefusedError if it breaks the schema."""
    content = content or b"{}"
    try:
        return schema.model_validate_json(content).model_dump(exclude_unset=True)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        raise RefusedError(400, _message(problems, content)) from error


def _message(problems: list[Any], content: bytes) -> str:
    """What is wrong with a body, with the place of each problem in it."""
    if problems[0]["type"] == "json_invalid":
        return f"the body is not JSON: {problems[0]['msg'].partition(': ')[2]}"
    data, said = json.loads(content), dict[str, list[str]]()
    for one in problems:
        place = _place(one, data)
        words = one["msg"][0].lower() + one["msg"][1:]
        said.setdefault(place, []).append(words)
    found = [f"{place}: {' or '.join(dict.fromkeys(words))}" for place, words in said.items()]
    more = f"; and {len(found) - MAX_PROBLEMS} more" if len(found) > MAX_PROBLEMS else ""
    return "; ".join(found[:MAX_PROBLEMS])[:MAX_MESSAGE] + more


def _place(problem: Any, data: Any) -> str:
    """The place of a problem; parts of it that are not in the body name alternatives of a type."""
    found, last = [], problem["loc"][-1:]
    for part in problem["loc"]:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            if problem["type"] != "missing" or (part,) != last:
                continue
        found.append(str(part)[:100])
    return ".".join(found) or "the body"
