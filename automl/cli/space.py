"""`automl space CONFIG`: show the search space on this hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from automl.core.text import number
from search_spaces import Choice, Float, Int

from .common import config_arguments, emit, json_option

if TYPE_CHECKING:
    from automl.config import Config
    from search_spaces.parameters import Parameter


@click.command()
@config_arguments
@json_option
def space(config: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the search space of a configuration, and what this hardware leaves out and why.

    \b
    Examples:
      automl space configs/nmt.yaml
      automl space configs/nmt.yaml space=auto
    """
    from automl.config import load

    loaded = load(config, overrides, objective=None)
    if as_json:
        found = {
            "workload": loaded.spec.workload,
            **loaded.spec.space.to_dict(),
            "default": loaded.spec.space.default(),
            "size": loaded.spec.space.size,
            "fixed": dict(loaded.spec.fixed),
            "dropped": [vars(item) for item in loaded.dropped],
        }
        emit(found)
    else:
        show_space(loaded)


def show_space(config: Config) -> None:
    """Print the space as tables."""
    from automl.report.console import console, table

    space, out = config.spec.space, console()
    rows = []
    for p in space.parameters.values():
        when = " and ".join(f"{k} is {' or '.join(map(number, v))}" for k, v in p.when.items())
        default = number(p.default) if p.has_default else "-"
        affects = ", ".join(sorted(p.affects)) if len(p.affects) < 3 else "everything"
        rows.append([p.name, default, affects, _domain(p) + (f"  when {when}" if when else "")])
    out.print(table(["parameter", "default", "affects", "values"], rows))
    for constraint in space.constraints:
        out.print(f"constraint: {constraint}", markup=False)
    endless = any(p.size is None for p in space.parameters.values())
    many = "infinitely many" if endless else "more than 20,000"
    size = many if space.size is None else f"{space.size:,}"
    out.print(f"{len(space.parameters)} parameters, {size} configurations", style="dim")
    if config.spec.fixed:
        fixed = "  ".join(f"{name}={number(value)}" for name, value in config.spec.fixed.items())
        out.print(f"\nnot tuned: {fixed}", markup=False)
    if config.dropped:
        out.print("\nleft out on this hardware:")
        gone = [
            [d.parameter, "-" if d.value is None else str(d.value), d.reason]
            for d in config.dropped
        ]
        out.print(table(["parameter", "value", "reason"], gone))


def _domain(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return ", ".join(number(choice) for choice in parameter.choices)
    assert isinstance(parameter, Float | Int)
    kind = "whole numbers " if isinstance(parameter, Int) else ""
    scale = " on a log scale" if parameter.log else ""
    steps = f" in steps of {number(parameter.step)}" if "step" in parameter.domain() else ""
    return f"{kind}{number(parameter.low)} to {number(parameter.high)}{steps}{scale}"
