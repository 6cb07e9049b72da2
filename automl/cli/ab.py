"""`automl ab`: is B better than A?"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from automl.core.resuming import Typed
from automl.errors import UsageError

from . import INTERRUPTED, NO_SUCCESS, SHOULD_STOP
from .common import emit, say
from .program import Program, ProgramVerb, load_trained
from .running import check_runnable

if TYPE_CHECKING:
    from automl.core import Snapshot, SweepSpec
    from automl.ledger import Ledger
    from automl.workflows.paired_test import PairedTest
    from workers.protocol import Params

EXITS: Final = {"better": 0, "worse": SHOULD_STOP, "no difference": SHOULD_STOP}


class ABVerb(ProgramVerb):
    """A verb with two commands, or with one for two trials; the second one is its `other`."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """With the commands at the end."""
        pieces = super().collect_usage_pieces(ctx)
        return [*pieces[:-1], "[-- COMMAND_A [ARG]...]", "[-- COMMAND_B [ARG]...]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Everything behind the second `--` is the other command."""
        places = [place for place, word in enumerate(args) if word == "--"]
        if len(places) > 2:
            raise click.UsageError(
                f"-- stands before each of the two commands, got {len(places)} of them; "
                "put a command that holds -- itself into a script",
                ctx,
            )
        other = tuple(args[places[1] + 1 :]) if len(places) == 2 else None
        if other == ():
            raise click.UsageError("a command is needed after the second --", ctx)
        left = super().parse_args(ctx, args if other is None else args[: places[1]])
        ctx.params["other"] = Program(other) if other else None
        return left


@dataclass(frozen=True)
class _Compared:
    """What is compared.

    Args:
        spec: of the sweep that keeps the runs.
        sides: the configurations.
        objective: what the runs run; None for a workload.
        facts: that are recorded.
    """

    spec: SweepSpec
    sides: Mapping[str, Params]
    objective: Callable[[Any], Any] | None
    facts: Mapping[str, Any]


def ab(
    source: str | None,
    a: int | None,
    b: int | None,
    alpha: float,
    effect: float,
    runs: int | None,
    as_json: bool,
    store: str,
    program: Program | None,
    dispatcher: str,
    ray_address: str | None,
    other: Program | None = None,
    **options: Any,
) -> int:
    """Compare two commands, or two trials of a sweep, by pairs of runs; return the exit status."""
    from automl.ledger import Ledger
    from automl.workflows.ab import KIND, begin, compare
    from automl.workflows.paired_test import PairedTest

    test = PairedTest(alpha, effect)
    most = 2 * test.most_pairs if runs is None else runs
    commands = None if source is not None else _commands(program, other, **options)
    with closing(Ledger.open(store, create=commands is not None)) as ledger:
        if commands is None:
            typed = Typed(store, options["objective"], ray_address)
            found = _trials(ledger, str(source), a, b, typed, program, other, **options)
        else:
            found = commands
        facts = {**found.facts, "alpha": alpha, "effect": effect, "most_runs": most}
        spec = begin(ledger, found.spec, {KIND: facts}, rename=commands is not None)
        comparison, snapshot = compare(
            ledger,
            spec,
            found.sides,
            test,
            most,
            partial(_run, ledger, found.objective, test, dispatcher, ray_address),
            tell=lambda one: say(str(one), err=True),
        )
    if as_json:
        emit(comparison.to_dict())
    say(str(comparison), err=as_json)
    if snapshot.state != "finished":
        return INTERRUPTED
    return EXITS.get(comparison.answer, NO_SUCCESS)


def _run(
    ledger: Ledger,
    objective: Callable[[Any], Any] | None,
    test: PairedTest,
    dispatcher: str,
    ray_address: str | None,
    spec: SweepSpec,
) -> Snapshot:
    """Run the waiting trials of a comparison."""
    from automl import sweeps
    from automl.control.plugins import Plugins
    from automl.core.plugin_choice import PluginChoice
    from automl.workflows.ab import HopelessRuns

    stopper = PluginChoice[Any]("none", given=HopelessRuns(spec.goals, test))
    return sweeps.run(
        spec,
        ledger=ledger,
        objective=objective,
        dispatcher=dispatcher,
        ray_address=ray_address,
        resume=True,
        plugins=Plugins(PluginChoice(spec.suggester), stopper),
    )


def _commands(
    program: Program | None,
    other: Program | None,
    *,
    seed: int | None,
    objective: str | None,
    artifacts: str | None,
    **options: Any,
) -> _Compared:
    """Two commands, after all checks that need nothing to be created."""
    from automl.workflows.ab import KIND, A, B, code_of_commands, of_commands
    from workers.command.either import EitherCommand

    if program is None or other is None:
        raise UsageError(
            "compare two commands, as in automl ab -- python a/train.py -- python b/train.py, "
            "or two trials, as in automl ab SWEEP 0 7"
        )
    if objective is not None or artifacts is not None:
        raise UsageError("--objective and --artifacts are for the trials of a sweep")
    goal, patterns = _goal(program, **options)
    drawn = secrets.randbelow(2**31) if seed is None else seed
    spec, sides = of_commands(goal, f"{program} {other}", patterns, drawn)
    both = {A: program, B: other}
    commands: Any = {side: load_trained(spec, None, one) for side, one in both.items()}
    code = code_of_commands({side: one.arguments for side, one in both.items()})
    return _Compared(spec, sides, EitherCommand(commands), code[KIND])


def _goal(
    program: Program, *, metric: str | None, minimize: bool, maximize: bool, reports: str | None
) -> tuple[Any, dict[str, str]]:
    """The goal, and how the commands print its metric.

    Raises:
        UsageError: the metric, its direction or the expression is missing or wrong.
    """
    from automl.core import Goal
    from workers.command.patterns import compile_pattern
    from workers.command.printed_metrics import VALUE, reported_metrics

    if minimize and maximize:
        raise UsageError("--minimize or --maximize: leave one out")
    patterns = {}
    if metric is None:
        known = _printed(program)
        metric = known.name
        patterns = {"step": known.step, metric: known.pattern}
    else:
        known = next(iter(reported_metrics([metric])), None)
    if not (minimize or maximize) and known is None:
        raise UsageError(f"add --minimize or --maximize: which {metric} is good is not known")
    down = minimize or (not maximize and known is not None and not known.maximize)
    goal = Goal.parse(f"{'minimize' if down else 'maximize'} {metric}")
    if reports is not None or metric not in patterns:
        name = re.escape(metric)
        patterns[metric] = reports or rf"(?:^|[^\w.@/-]){name}['\"]?(?:\s*[:=]\s*|\s+){VALUE}"
    patterns = {name: text for name, text in patterns.items() if text}
    for name, text in patterns.items():
        compile_pattern(name, text)
    return goal, patterns


def _printed(program: Program) -> Any:
    """The metric that counts of those that a command prints."""
    from .init import printed_by

    found = printed_by(program)
    if not found or (len(found) > 1 and not found[0].of_validation):
        names = ", ".join(one.name for one in found) or "none is known"
        raise UsageError(f"name the metric with --metric, of those that A prints: {names}")
    return found[0]


def _trials(
    ledger: Ledger,
    source: str,
    a: int | None,
    b: int | None,
    typed: Typed,
    program: Program | None,
    other: Program | None,
    *,
    objective: str | None,
    artifacts: str | None,
    **options: Any,
) -> _Compared:
    """Two trials of a sweep."""
    from automl.workflows.ab import of_trials
    from automl.workflows.artifacts import moved_to

    if a is None or b is None:
        raise UsageError(f"name two trials of {source} by their numbers, as in {source} 0 7")
    wrong = [f"--{name}" for name, value in options.items() if value not in (None, False)]
    if wrong:
        raise UsageError(f"{wrong[0]} is for two commands: {source} has a goal already")
    if other is not None:
        raise UsageError("the trials of a sweep run one command, got two")
    spec, sides = of_trials(ledger, source, a, b)
    check_runnable(ledger.spec(source), typed, program, "ab")
    function = load_trained(spec, objective, program)
    code = {"sweep": source, **{side: dict(params) for side, params in sides.items()}}
    return _Compared(moved_to(spec, artifacts), sides, function, code)
