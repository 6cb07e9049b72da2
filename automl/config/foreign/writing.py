"""Writes a configuration from a sweep of another tool."""

from __future__ import annotations

import json
from typing import Any, Final

from automl.config.template import name_of
from automl.core.plain_data import yaml_scalar
from automl.core.text import printable
from workers.command.printed_metrics import VALUE

from .sweep import ForeignSweep

_SETTINGS: Final = ("budget", "suggester", "stopper", "max_steps", "workers")
_REPORTS: Final = """\
# How the program prints them: RE2 expressions with one group. Adapt them, or remove this part if
# the program writes to the file $AUTOML_REPORTS.
reports:
{patterns}

"""


def text_of(sweep: ForeignSweep, source: str, file: str) -> str:
    """A configuration with comments.

    Args:
        sweep: of another tool; source: its file.
        file: of the configuration.
    """
    command = f" -- {sweep.command}" if sweep.command else ""
    lines = [
        f"# From {printable(source)}, a file of {sweep.tool}",
        "#",
        f"#   automl sweep --dry-run {file}{command or ' -- COMMAND'}",
        f"#   automl sweep {file}{command or ' -- COMMAND'}",
    ]
    if sweep.notes:
        lines += ["#", "# Not carried over, or not exactly:"]
        lines += [f"# - {printable(note)}" for note in sweep.notes]
    lines += ["", f"name: {name_of(file)}", "", f"goals: {json.dumps(sweep.goals)}", ""]
    patterns = "\n".join(f"  {name}: '{_pattern(name)}'" for name in map(_metric, sweep.goals))
    body = "\n".join(lines) + "\n" + _REPORTS.format(patterns=patterns) + "space:\n"
    body += "".join(f"  {name}: {_flow(entry)}\n" for name, entry in sweep.space.items())
    settings = {"budget": {"trials": 20}, "suggester": "bayes", **sweep.settings}
    body += "".join(f"\n{key}: {_flow(settings[key])}" for key in _SETTINGS if key in settings)
    return body + "\n"


def _metric(goal: str) -> str:
    return goal.split(" ", 1)[1]


def _pattern(metric: str) -> str:
    escaped = "".join(one if one.isalnum() or one == "_" else f"\\{one}" for one in metric)
    return rf"\b{escaped}[\s:='\"]+{VALUE}".replace("'", "''")


def _flow(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return yaml_scalar(value)
