"""The action that says which of two programs is better."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .action import Action, Argument
from .arguments import DISPATCHING, JSON, STORE
from .headings import TAKE_OUT

COMPARING: Final = (
    Action(
        "ab",
        TAKE_OUT,
        "Is B better than A? Two programs.",
        """Say whether the program B is better than A.

        Both run in pairs that have the same seed (`{seed}`, AUTOML_SEED). It ends as soon as the
        answer is sure enough, often after a dozen runs. The metric is read from AUTOML_REPORTS, or
        from lines such as `METRIC 0.5`, `METRIC=0.5` or `METRIC: 0.5`. The runs are kept as a
        sweep, with the commit and the diff of each side.""",
        (
            "automl ab --metric loss -- python a/train.py -- python b/train.py",
            "automl ab --metric acc --maximize -- ./old --seed={seed} -- ./new --seed={seed}",
        ),
        (
            Argument(
                "metric",
                help="That the programs report or print.  [default: A is run for at most 20 s, to "
                "see what it prints]",
                flag="--metric",
                metavar="NAME",
            ),
            Argument("minimize", bool, "A small value is good.", "--minimize", default=False),
            Argument("maximize", bool, "A large value is good.", "--maximize", default=False),
            Argument(
                "alpha",
                float,
                "Largest probability to call B better if it is not.",
                "--alpha",
                "P",
                default=0.05,
            ),
            Argument(
                "effect",
                float,
                "Difference that must be found, with 90%: in standard deviations of the "
                "differences between two runs with the same seed.",
                "--effect",
                "D",
                default=1.0,
            ),
            Argument(
                "runs",
                int,
                "Most runs, of both sides together.  [default: 60, more for a small effect]",
                "--runs",
                "N",
                min=2,
                max=100_000,
            ),
            Argument(
                "reports",
                help="How the programs print the metric, with one group, such as 'loss (\\S+)'.",
                flag="--reports",
                metavar="REGEX",
            ),
            Argument(
                "seed",
                int,
                "Of the seeds of two programs.  [default: new ones each time]",
                "--seed",
                "N",
                min=0,
                max=2**31 - 1,
            ),
            STORE,
            JSON,
            *(
                replace(one, on="shell")
                for one in (
                    replace(DISPATCHING[0], default="auto"),
                    *DISPATCHING[1:],
                )
            ),
            Argument(
                "command_a",
                "command",
                "A: a program and its arguments.",
                required=True,
                on="mcp",
            ),
            Argument("command_b", "command", "B.", required=True, on="mcp"),
        ),
        "automl.cli.ab.ab",
        parser="automl.cli.ab.ABVerb",
        exits="Exit status: 0 if B is better, 10 if it is not, 3 if that is not known.",
    ),
)
