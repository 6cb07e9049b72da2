"""How the command line prints the answers that agents get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import NO_SUCCESS, SHOULD_STOP
from .common import emit, say


def show_asked(sweep: str, answer: Mapping[str, Any], as_json: bool) -> int | None:
    """Print the trial that `automl ask` got."""
    if as_json:
        emit(answer)
    if answer["trial"] is None:
        say(f"{sweep} gives no more trials: {answer['reason']}", err=True)
        return NO_SUCCESS
    if not as_json:
        params = "  ".join(f"{name}={value}" for name, value in answer["params"].items())
        say(f"trial {answer['trial']}, attempt {answer['attempt']}: {params}")
        seconds = f"{answer['lease_seconds']:g} s"
        say(f"report or tell within {seconds}, or ask with a longer --lease", err=True)
    return None


def show_step(sweep: str, answer: Mapping[str, Any], as_json: bool) -> int | None:
    """Print whether a trial should go on."""
    if as_json:
        emit(answer)
    if answer["stop"]:
        say(f"trial {answer['trial']} should stop: {answer['reason']}", err=True)
        return SHOULD_STOP
    return None


def show_result(sweep: str, answer: Mapping[str, Any], as_json: bool) -> None:
    """Print what has become of a trial."""
    if as_json:
        return emit(answer)
    failure = f" ({answer['failure']})" if answer["failure"] else ""
    message = f": {answer['message']}" if answer["message"] else ""
    again = "; it was told before" if answer["same"] else ""
    return say(f"trial {answer['trial']} is {answer['state']}{failure}{message}{again}")
