"""`reports:`, how a command reports its metrics."""

from __future__ import annotations

from collections.abc import Mapping

from automl.errors import UsageError

from .nodes import ConfigProblems, Node
from .schema import Document

KEY = "reports"


def add_reports(root: Node, reports: Mapping[str, str]) -> None:
    """Set entries that `--report` names, unless the file's section is not a mapping."""
    if not reports or not isinstance(root.value, dict):
        return
    section = root.value.setdefault(KEY, Node({}, "--report"))
    if section.value is None:
        section.value = {}
    if isinstance(section.value, dict):
        for name, pattern in reports.items():
            section.value[name] = Node(pattern, f"--report {name}")


def check_reports(
    root: Node, document: Document, problems: ConfigProblems, *, command: bool
) -> None:
    """Check the patterns; errors go to `problems`.

    Args:
        root, document: of the configuration.
        problems: receives the errors.
        command: whether a command is tuned, or may be.
    """
    if not document.reports:
        return
    if not command:
        text = "only a command has reports; add it to the line: -- python train.py --lr={lr}"
        problems.under(root, (KEY,), text)
        return
    from workers.command.patterns import compile_pattern
    from workers.command.tensorboard import TENSORBOARD, check_reader

    for name, pattern in document.reports.items():
        try:
            if name == TENSORBOARD:
                check_reader()
            else:
                compile_pattern(name, pattern)
        except UsageError as error:
            problems.under(root, (KEY, name), str(error))
