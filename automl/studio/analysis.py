"""The routes of the API whose answers need models or tests, which another process makes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from automl.errors import UsageError

from .encoding import encoded
from .surrogates import SurrogateQueries

MOST_COMPARED: Final = 6
Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class AnalysisRoutes:
    """Contours and comparisons.

    Args:
        surrogates: the process that answers.
    """

    def __init__(self, surrogates: SurrogateQueries) -> None:
        self._ask: Ask = surrogates.ask

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/api/sweeps/{sweep}/contours", self.contours),
            Route("/api/difference", self.difference),
        ]

    async def contours(self, request: Request) -> Response:
        """A metric over two parameters: `?metric=loss&x=lr&y=batch_size`."""
        chosen = {name: request.query_params.get(name, "") for name in ("metric", "x", "y")}
        question = {"ask": "contours", "sweep": request.path_params["sweep"], **chosen}
        return await self._answer(question)

    async def difference(self, request: Request) -> Response:
        """Whether the difference is more than noise: `?sweeps=a&sweeps=b` or `?trials=a:3&...`.

        Raises:
            UsageError: there are not 2 to 6 of them, or one is not written so.
        """
        sweeps = request.query_params.getlist("sweeps")
        trials = request.query_params.getlist("trials")
        if not 2 <= len(sweeps or trials) <= MOST_COMPARED:
            raise UsageError(f"compare 2 to {MOST_COMPARED} sweeps or trials")
        pairs = [(name, digits) for name, _, digits in (one.rpartition(":") for one in trials)]
        wrong = [one for one, (_, digits) in zip(trials, pairs, strict=True) if not _whole(digits)]
        if wrong:
            raise UsageError(f"a trial is SWEEP:NUMBER, got {wrong[0][:80]!r}")
        chosen = [(name, int(digits)) for name, digits in pairs]
        return await self._answer({"ask": "difference", "sweeps": sweeps, "trials": chosen})

    async def _answer(self, question: dict[str, Any]) -> Response:
        return Response(encoded(await self._ask(question)), media_type="application/json")


def _whole(digits: str) -> bool:
    return digits.isascii() and digits.isdecimal() and len(digits) < 12
