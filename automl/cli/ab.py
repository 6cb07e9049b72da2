"""`automl ab`: is B better than A?"""

import secrets
from contextlib import closing
from functools import partial
from typing import Any, Final

import click

from automl import sweeps
from automl.core import Goal
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.workflows.ab import A, B, compare, of_commands
from automl.workflows.paired_test import PairedTest
from workers.command.command import EitherCommand
from workers.command.printed_metrics import larger_is_better
from workers.command.reports import compile_pattern

from . import INTERRUPTED, NO_SUCCESS, SHOULD_STOP
from .common import dispatching, emit, json_option, say, store_option, whole
from .init import printed_by
from .program import Program, ProgramVerb, load_trained

EXITS: Final = {"better": 0, "worse": SHOULD_STOP, "no difference": SHOULD_STOP}


class ABVerb(ProgramVerb):
    """A verb with two commands; the second one is its `other`."""

    parts = ("program", "other")
    usage = "[-- COMMAND_A [ARG]...] [-- COMMAND_B [ARG]...]"


@click.command(cls=ABVerb)
@click.option(
    "--metric",
    metavar="NAME",
    help="That the programs report or print.  [default: A is run for at most 20 s, to see what it "
    "prints]",
)
@click.option("--maximize/--minimize", default=None, help="Whether a large value is good.")
@click.option(
    "--alpha",
    type=float,
    metavar="P",
    default=0.05,
    show_default=True,
    help="Largest probability to call B better if it is not.",
)
@click.option(
    "--effect",
    type=float,
    metavar="D",
    default=1.0,
    show_default=True,
    help="Difference that must be found, with 90%: in standard deviations of the differences "
    "between two runs with the same seed.",
)
@click.option(
    "--runs",
    type=whole(2, 100_000),
    metavar="N",
    help="Most runs, of both sides together.  [default: 60, more for a small effect]",
)
@click.option(
    "--reports",
    metavar="REGEX",
    help="How the programs print the metric, with one group, such as 'loss (\\S+)'.",
)
@click.option(
    "--seed",
    type=whole(0, 2**31 - 1),
    metavar="N",
    help="Of the seeds of two programs.  [default: new ones each time]",
)
@store_option
@json_option
@dispatching()
def ab(
    alpha: float,
    effect: float,
    runs: int | None,
    seed: int | None,
    as_json: bool,
    store: str,
    program: Program | None,
    dispatcher: str | None,
    ray_address: str | None,
    other: Program | None = None,
    **options: Any,
) -> int:
    """Say whether the program B is better than A.

    Both run in pairs that have the same seed (`{seed}`, AUTOML_SEED). It ends as soon as the answer
    is sure enough, often after a dozen runs. The metric is read from AUTOML_REPORTS, or from lines
    such as `METRIC 0.5`, `METRIC=0.5` or `METRIC: 0.5`. The runs are kept as a sweep, with the
    commit and the diff of each side.

    \b
    Examples:
      automl ab --metric loss -- python a/train.py -- python b/train.py
      automl ab --metric acc --maximize -- ./old --seed={seed} -- ./new --seed={seed}

    Exit status: 0 if B is better, 10 if it is not, 3 if that is not known.
    """
    test = PairedTest(alpha, effect)
    most = 2 * test.most_pairs if runs is None else runs
    if program is None or other is None:
        raise UsageError(
            "compare two commands, as in automl ab -- python a/train.py -- python b/train.py"
        )
    if "--" in other.arguments:
        raise UsageError(
            "-- stands before each of the two commands, got 3 of them; "
            "put a command that holds -- itself into a script"
        )
    goal, patterns = _goal(program, **options)
    drawn = secrets.randbelow(2**31) if seed is None else seed
    spec = of_commands(goal, f"{program} {other}", patterns, drawn)
    both = {A: program, B: other}
    commands: Any = {side: load_trained(spec, None, one) for side, one in both.items()}
    code = {side: {"command": list(one.arguments)} for side, one in both.items()}
    facts = {**code, "alpha": alpha, "effect": effect, "most_runs": most}
    with closing(Ledger.open(store, create=True)) as ledger:
        run = partial(
            sweeps.run,
            ledger=ledger,
            objective=EitherCommand(commands),
            dispatcher=dispatcher or "auto",
            ray_address=ray_address,
            resume=True,
        )
        comparison, snapshot = compare(
            *(ledger, spec, test, most, run, facts), tell=lambda one: say(str(one), err=True)
        )
    if as_json:
        emit(comparison.to_dict())
    say(str(comparison), err=as_json)
    if snapshot.state != "finished":
        return INTERRUPTED
    return EXITS.get(comparison.answer, NO_SUCCESS)


def _goal(
    program: Program, *, metric: str | None, maximize: bool | None, reports: str | None
) -> tuple[Any, dict[str, str]]:
    """The goal, and how the commands print its metric.

    Raises:
        UsageError: the metric, its direction or the expression is missing or wrong.
    """
    patterns = {}
    if metric is None:
        found = printed_by(program)
        if not found or (len(found) > 1 and not found[0].of_validation):
            names = ", ".join(one.name for one in found) or "none is known"
            raise UsageError(f"name the metric with --metric, of those that A prints: {names}")
        metric, patterns = found[0].name, {"step": found[0].step, found[0].name: found[0].pattern}
    up = larger_is_better(metric) if maximize is None else maximize
    if up is None:
        raise UsageError(f"add --minimize or --maximize: which {metric} is good is not known")
    if reports is not None:
        patterns[metric] = reports
    patterns = {name: text for name, text in patterns.items() if text}
    for name, text in patterns.items():
        compile_pattern(name, text)
    return Goal.parse(f"{'maximize' if up else 'minimize'} {metric}"), patterns
