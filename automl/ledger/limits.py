"""How long texts in the log may be, whoever writes them. A text that is too long is cut."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from automl.core import SweepEvent
from automl.core.events import Ended
from workers.failures import MAX_MESSAGE, MAX_NAME, MAX_TRACEBACK, bounded
from workers.protocol import Report

MAX_CHARACTERS: Final[Mapping[str, int]] = {  # by field of an event or of an outcome
    "message": MAX_MESSAGE,
    "reason": MAX_MESSAGE,
    "gpu_lost": MAX_MESSAGE,
    "worker": 300,
    "agent": MAX_NAME,
    "by": MAX_NAME,
    "source": MAX_NAME,
    "exception": MAX_NAME,
    "node_kind": MAX_NAME,
    "kind": MAX_NAME,
    "failure": MAX_NAME,
}
_PRINTED: Final = ("message", "reason", "source")


def limited(event: SweepEvent) -> SweepEvent:
    """The event with each text at most as long as it may be."""
    if isinstance(event, Report):
        return event
    found = _cut(event)
    if isinstance(found, Ended):
        outcome = _cut(found.outcome)
        text = str(outcome.details.get("traceback", ""))
        if len(text) > MAX_TRACEBACK:
            short = {"traceback": bounded(text, MAX_TRACEBACK)}
            outcome = replace(outcome, details={**outcome.details, **short})
        found = found if outcome is found.outcome else replace(found, outcome=outcome)
    result: SweepEvent = found
    return result


def storable(text: str) -> str:
    """The text with NUL and halves of surrogate pairs escaped, because databases refuse them."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("\0", "\\x00")


def _cut(value: Any) -> Any:
    """An event or an outcome whose texts are within their limits."""
    changed = {}
    for name, text in vars(value).items():
        if text and isinstance(text, str) and (most := MAX_CHARACTERS.get(name)):
            short = bounded(storable(text) if name in _PRINTED else text, most)
            if short != text:
                changed[name] = short
    return replace(value, **changed) if changed else value
