"""The process that acts for the studio: it writes to the ledger, so the server only reads.

    python -m automl.studio.action_process STORE

If no controller runs, it may load the suggester, so that the server needs no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from automl.config.limits import known_parameter, limit_of
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.suggesters.domain import Limit
from automl.workflows import agents, next_trials, steering
from search_spaces import Choice, Float, Int, Space
from search_spaces.validation import plain, plain_params

from .child import serve

THREADS: Final = 32  # requests that wait for an answer at once
Answer = Mapping[str, Any]
_SPECIAL: Final = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


class Actions:
    """Does what a verb of `verbs.VERBS` says.

    Args:
        ledger: open for writing.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __call__(self, question: Mapping[str, Any]) -> Answer:
        """Answer `{"verb": NAME, "sweep": NAME, "trial": NUMBER or None, "body": {...}}`."""
        act: Callable[..., Answer] = _VERBS[question["verb"]]
        where = {} if question["trial"] is None else {"trial": question["trial"]}
        return act(self._ledger, question["sweep"], **where, **question["body"])


def _report_step(ledger: Ledger, sweep: str, **body: Any) -> Answer:
    return agents.report_step(ledger, sweep, **_with_numbers(body))


def _tell(ledger: Ledger, sweep: str, **body: Any) -> Answer:
    return agents.tell(ledger, sweep, **_with_numbers(body))


def _with_numbers(body: Mapping[str, Any]) -> dict[str, Any]:
    metrics = {name: _SPECIAL.get(value, value) for name, value in body["metrics"].items()}
    return {**body, "metrics": metrics}


def _done(act: Callable[..., str]) -> Callable[..., Answer]:
    return lambda ledger, sweep, **body: {"done": act(ledger, sweep, **body)}


def _set_budget(ledger: Ledger, sweep: str, by: str = "", **limits: Any) -> Answer:
    return {"done": steering.set_budget(ledger, sweep, limits, by)}


def _pin(
    ledger: Ledger,
    sweep: str,
    limits: Mapping[str, Any] | None = None,
    release: Sequence[str] = (),
    by: str = "",
) -> Answer:
    space = ledger.spec(sweep).space
    given = {name: _limit(space, name, value) for name, value in (limits or {}).items()}
    if not given and not release:
        raise UsageError("name a parameter in limits or in release")
    found = next_trials.pin(ledger, sweep, given, release, by)
    shown = "; ".join(f"{name}: {limit}" for name, limit in found.items())
    return {
        "done": f"from the next suggestion on: {shown}" if shown else "nothing is limited",
        "limits": {name: limit.to_dict() for name, limit in found.items()},
    }


def _limit(space: Space, name: str, value: Any) -> Limit:
    if not isinstance(value, dict):
        return limit_of(space, name, plain(value))
    parameter = known_parameter(space, name)
    if "choices" in value:
        if not isinstance(parameter, Choice):
            raise UsageError(f"{name} is a number: its limit is a value, or low and high")
        return limit_of(space, name, tuple(map(plain, value["choices"])))
    if not isinstance(parameter, Float | Int):
        raise UsageError(f"{name} has choices: its limit is a value, or choices")
    ends = [
        end if value.get(key) is None else _as_kind(value[key], end)
        for key, end in (("low", parameter.low), ("high", parameter.high))
    ]
    return limit_of(space, name, tuple(ends))


def _as_kind(value: float, end: float | int) -> float | int:
    """A whole number if the parameter's are, such as 8.0 of JSON."""
    return int(value) if isinstance(end, int) and float(value).is_integer() else value


def _enqueue(ledger: Ledger, sweep: str, params: Mapping[str, Any], by: str = "") -> Answer:
    found, number = next_trials.try_next(ledger, sweep, plain_params(params), by)
    done = f"{sweep} tries it next" if number is None else f"trial {number} waits for a resume"
    return {"done": done, "params": dict(found), "trial": number}


_VERBS: Final[Mapping[str, Callable[..., Answer]]] = {
    "ask": agents.ask,
    "report_step": _report_step,
    "tell": _tell,
    "fail": agents.fail,
    "stop_sweep": _done(steering.stop_sweep),
    "set_budget": _set_budget,
    "pin": _pin,
    "enqueue": _enqueue,
    "mark_sweep": steering.mark,
    "mark_trial": steering.mark,
    "stop_trial": _done(steering.stop_trial),
    "pause_trial": _done(steering.pause_trial),
    "resume_trial": _done(steering.resume_trial),
    "retry_trial": _done(steering.retry_trial),
}


def main() -> None:
    """Answer until standard input ends."""
    serve(Actions(Ledger.open(sys.argv[1])), THREADS)


if __name__ == "__main__":
    main()
