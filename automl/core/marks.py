"""What people mark a sweep or a trial with: a star, tags, a note, and whether it is archived."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .events import Command

MARK: Final = "mark"  # the kind of such a command
MAX_NOTE: Final = 4096  # characters of a note or a tag
NO_MARKS: Final[Mapping[str, Any]] = {
    "star": False,
    "tags": [],
    "note": "",
    "archived": False,
    "by": "",
    "when": None,
}
Marks = dict[int | None, Mapping[str, Any]]


def add_marks(found: Marks, commands: Iterable[Command]) -> set[int | None]:
    """Take further commands into account, in their order.

    Args:
        found: the marks of the sweep (None) and of its trials, by number; it is changed.

    Returns:
        The trials, or None for the sweep, whose marks have changed.
    """
    changed: set[int | None] = set()
    for command in commands:
        if command.kind != MARK:
            continue
        before, content = found.get(command.trial, NO_MARKS), command.content
        tags = [tag for tag in before["tags"] if tag not in content.get("remove_tags", ())]
        tags += [tag for tag in content.get("add_tags", ()) if tag not in tags]
        found[command.trial] = {
            "star": content.get("star", before["star"]),
            "tags": tags,
            "note": content.get("note", before["note"]),
            "archived": content.get("archived", before["archived"]),
            "by": command.by,
            "when": command.sent,
        }
        changed.add(command.trial)
    return changed
