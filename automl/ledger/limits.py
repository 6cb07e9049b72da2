"""How long texts in the log may be, whoever writes them. A text that is too long is cut.

Notes and tags of people are refused if they are too long, so that nobody loses what they wrote.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from automl.core import SweepEvent
from automl.core.events import Command, Ended
from automl.core.marks import MARK
from automl.errors import UsageError
from workers.failures import MAX_MESSAGE, MAX_TRACEBACK
from workers.protocol import Report

MAX_CHARACTERS: Final[Mapping[str, int]] = {  # by field of an event or of an outcome
    "message": MAX_MESSAGE,
    "reason": MAX_MESSAGE,
    "traceback": MAX_TRACEBACK,
    "gpu_lost": MAX_MESSAGE,
    "worker": 300,
    "agent": 200,
    "by": 200,
    "source": 200,
    "exception": 200,
    "node_kind": 200,
    "kind": 200,
    "failure": 200,
}
MAX_NOTE: Final = 4096
MAX_TAG: Final = 4096
_PRINTED: Final = ("message", "reason", "source")
_MARK: Final = 64  # characters of the mark, which a worker may have added already


def limited(event: SweepEvent) -> SweepEvent:
    """The event with each text at most as long as it may be.

    Raises:
        UsageError: a note or a tag of a person is too long.
    """
    if isinstance(event, Report):
        return event
    if isinstance(event, Command) and event.kind == MARK:
        _check_mark(event.content)
    if isinstance(event, Ended):
        outcome = _cut(event.outcome)
        details = outcome.details
        text = str(details.get("traceback", ""))
        if (short := cut(text, MAX_CHARACTERS["traceback"])) != text:
            outcome = replace(outcome, details={**details, "traceback": short})
        event = event if outcome is event.outcome else replace(event, outcome=outcome)
    found: SweepEvent = _cut(event)
    return found


def cut(text: str, most: int) -> str:
    """A text of at most `most` characters, and a mark that says how many it had."""
    if len(text) <= most + _MARK:
        return text
    return f"{text[:most]}... ({len(text):,} characters in all)"


def storable(text: str) -> str:
    """The text with NUL and halves of surrogate pairs escaped, because databases refuse them."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("\0", "\\x00")


def _cut(value: Any) -> Any:
    changed = {}
    for name, text in vars(value).items():
        if text and isinstance(text, str) and (most := MAX_CHARACTERS.get(name)):
            short = storable(text) if name in _PRINTED else text
            if (short := cut(short, most)) != text:
                changed[name] = short
    return replace(value, **changed) if changed else value


def _check_mark(content: Mapping[str, Any]) -> None:
    for name, texts, most in (
        ("note", [content.get("note", "")], MAX_NOTE),
        ("tag", content.get("add_tags", ()), MAX_TAG),
    ):
        if too_long := [text for text in texts if len(str(text)) > most]:
            raise UsageError(
                f"a {name} has at most {most:,} characters, got {len(str(too_long[0])):,}"
            )
