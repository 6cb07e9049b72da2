"""Actions before a sweep, those that run one, or that train its best trials again."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .action import Action, Argument
from .arguments import (
    ARTIFACTS,
    CONFIG,
    DISPATCHING,
    JSON,
    OBJECTIVE,
    STORE,
    SWEEP,
    TRIAL,
    output,
    setting,
)
from .headings import EVERY_DAY, PREPARE, TAKE_OUT

_PROGRAM: Final = "automl.cli.program.ProgramVerb"
_DISPATCHER: Final = DISPATCHING[0]
_AS_BEFORE: Final = replace(
    _DISPATCHER, help=_DISPATCHER.help.replace("[default: auto]", "[default: as before]")
)
_TRAINED: Final = (OBJECTIVE, ARTIFACTS, _AS_BEFORE, *DISPATCHING[1:])

RUNNING: Final = (
    Action(
        "init",
        EVERY_DAY,
        "Write a first configuration.",
        """Write a commented configuration for a workload, a function of your own, or a COMMAND.

        Or make one of a sweep of Weights & Biases, and say what could not be carried over.

        The numbers among the options of a command become parameters, with a range around each. The
        command is run for at most 20 seconds, to see which metrics it prints.""",
        (
            "automl init translation",
            "automl init --objective train.py:objective -o mine.yaml",
            "automl init -- python train.py --lr 0.001 --width 64",
            "automl init --from sweep.yaml -o mine.yaml",
        ),
        (
            Argument("workload", metavar="[WORKLOAD]"),
            OBJECTIVE,
            Argument(
                "source",
                flag="--from",
                metavar="FILE",
                help="The YAML file of `wandb sweep`. It is read as data: nothing in it is run.",
            ),
            output("NAME.yaml", "FILE", "File to write, '-' to print it."),
            Argument(
                "goal",
                flag="--goal",
                metavar="METRIC",
                help="Of those that the command prints: which counts.",
            ),
            Argument(
                "no_run",
                bool,
                "Do not run the command; guess the goal.",
                flag="--no-run",
            ),
        ),
        "automl.cli.init.init",
        parser=_PROGRAM,
    ),
    Action(
        "sweep",
        EVERY_DAY,
        "Run a sweep.",
        """Tune what a configuration describes: propose trials, train them, learn, and repeat.

        KEY=VALUE sets a value of the configuration by its dotted key. Ctrl-C interrupts the sweep;
        `automl resume` continues it. A COMMAND is run by each trial: {NAME} becomes the value of a
        parameter, {params} all of them as --NAME=VALUE.""",
        (
            "automl sweep configs/nmt.yaml",
            "automl sweep configs/nmt.yaml data.name=multi30k data.dir=data --trials 20",
            "automl sweep configs/nmt.yaml space.precision=[fp32,bf16] --name precision "
            "--budget 10m",
            "automl sweep mine.yaml --objective train.py:objective",
            'automl sweep --objective train.py:objective --goals "minimize loss" --trials 50',
            "automl sweep mine.yaml --objective train.py:objective --prior old.csv",
            "automl sweep mine.yaml -- python train.py --lr={lr} --batch-size={batch_size}",
            r"automl sweep mine.yaml --report loss='val_loss (\S+)' -- ./train {params}",
            "automl sweep configs/nmt.yaml prior.learning_rate=2e-3 prior.precision=bf16",
            "automl sweep configs/nmt.yaml data.name=multi30k data.dir=data --transfer nmt",
            "automl sweep mine.yaml --create            for agents, see automl ask --help",
        ),
        (
            replace(CONFIG[0], required=False),
            CONFIG[1],
            Argument("name", str, "Name of the sweep; refused if it is in use.", "--name", "NAME"),
            Argument(
                "resume",
                bool,
                "Continue the sweep of that name if it exists, for jobs that are started again.",
                "--resume",
                default=False,
            ),
            *map(
                setting,
                (
                    "goals",
                    "trials",
                    "budget",
                    "workers",
                    "seed",
                    "store",
                    "artifacts",
                    "transfer",
                    "replicates",
                ),
            ),
            Argument(
                "sources",
                help="Import trials from FILE.csv, optuna:URL#STUDY or sweep:NAME; may be "
                "repeated.",
                flag="--prior",
                metavar="SOURCE",
                many=True,
            ),
            Argument(
                "dry_run",
                bool,
                "Check everything, show what would run, create nothing.",
                "--dry-run",
                default=False,
            ),
            Argument(
                "create",
                bool,
                "Create the sweep for agents (`automl ask`), run nothing.",
                "--create",
                default=False,
            ),
            JSON,
            OBJECTIVE,
            Argument(
                "patterns",
                help=r"How a command prints a metric, such as loss='loss (\S+)'; may be repeated.",
                flag="--report",
                metavar="NAME=REGEX",
                many=True,
            ),
            *DISPATCHING,
        ),
        "automl.cli.sweep.sweep",
        parser=_PROGRAM,
    ),
    Action(
        "resume",
        EVERY_DAY,
        "Continue an interrupted sweep, or a paused trial.",
        """Continue an interrupted sweep with the rest of its budget, or with a larger one.

        KEY=VALUE changes the sweep as `automl set` does; here the space may also get wider ranges,
        other choices, new parameters with a default (space.NAME.FIELD=VALUE). Finished trials stay,
        and what was learned is kept. Interrupted trials continue from their newest checkpoint. A
        sweep that reached its budget needs a larger one to go on.""",
        (
            "automl resume nmt",
            "automl resume nmt --trials 60 --budget 1h",
            "automl resume nmt budget.trials=60 workers=4 space.learning_rate=[1e-4,0.3] "
            "'space.optimizer=[adamw, lion]'",
            "automl resume nmt --trials 60 --config configs/nmt.yaml",
            "automl resume mine --objective train.py:objective",
            "automl resume mine -- python train.py --lr={lr}",
            "automl resume nmt --artifacts s3://bucket/sweeps",
            "automl resume nmt --trial 12",
        ),
        (
            SWEEP,
            Argument("overrides", metavar="[KEY=VALUE]...", many=True),
            Argument(
                "config",
                "file",
                help="Take the space from this configuration, which may have changed since.",
                flag="--config",
                metavar="FILE",
            ),
            replace(
                TRIAL,
                help="Continue only this paused trial of a sweep that runs elsewhere.",
                required=False,
            ),
            STORE,
            setting("trials"),
            setting("budget"),
            JSON,
            OBJECTIVE,
            ARTIFACTS,
            Argument(
                "cwd",
                help="Run the function or command in this folder; without it, only in the folder "
                "where the sweep began.",
                flag="--cwd",
                metavar="FOLDER",
            ),
            _AS_BEFORE,
            *DISPATCHING[1:],
        ),
        "automl.cli.resume.resume",
        parser=_PROGRAM,
    ),
    Action(
        "confirm",
        TAKE_OUT,
        "Train the best again: is their lead more than noise?",
        """Train the best configurations again with other seeds, to see whether the lead is noise.

        They are the recommended one, the next ones and the best single trial. With --probability
        runs are added, where they tell most, until the best is known with it.

        The runs are kept as the sweep SWEEP.confirm. `best` and `report` then show the result. If
        you run it again, only missing runs are trained.""",
        (
            "automl confirm nmt",
            "automl confirm nmt --seeds 5 --top 2",
            "automl confirm nmt --probability 0.9 --runs 30",
            "automl confirm mine -- python train.py --lr={lr}",
        ),
        (
            SWEEP,
            STORE,
            Argument("seeds", int, "Runs of each configuration.", "--seeds", default=3, min=2),
            Argument("top", int, "Number of configurations.", "--top", default=3, min=2),
            Argument(
                "probability",
                float,
                "Add runs until the best is known with this probability.",
                "--probability",
                "P",
            ),
            Argument(
                "most", int, "Most runs in all, with --probability.", "--runs", default=60, min=2
            ),
            JSON,
            *_TRAINED,
        ),
        "automl.cli.training_again.confirm",
        parser=_PROGRAM,
    ),
    Action(
        "speed",
        PREPARE,
        "Find the fastest settings that cannot change the result.",
        """Find the fastest settings that cannot change the result, by trials of seconds.

        Parameters that affect quality stay at their defaults, or as the best trial of --sweep has
        them. Each probe leaves out a warm-up and measures some windows; one that runs out of memory
        counts as an answer. A function or a program is measured by the steps between its
        reports.""",
        (
            "automl speed configs/nmt.yaml",
            "automl speed configs/nmt.yaml --sweep nmt --time 2m --write fast.yaml",
            "automl speed mine.yaml --objective train.py:objective",
            "automl speed mine.yaml -- python train.py {params}",
        ),
        (
            *CONFIG,
            Argument(
                "best_of",
                help="Take what affects quality from the best trial of this sweep.",
                flag="--sweep",
                metavar="NAME",
            ),
            STORE,
            OBJECTIVE,
            Argument(
                "updates",
                int,
                "Updates to measure in a probe of a workload, reports of a function or a program."
                "  [default: 20 updates, 4 reports]",
                "--updates",
                "N",
                min=1,
            ),
            Argument("time", "duration", "Time for all probes.", "--time", "TIME", default="3m"),
            Argument(
                "write",
                "file",
                "Put the fastest settings into this configuration; a new FILE begins as a copy of "
                "CONFIG.",
                "--write",
                "FILE",
            ),
            JSON,
            replace(_DISPATCHER, default="auto", help=_DISPATCHER.help.partition("  [")[0]),
            *DISPATCHING[1:],
        ),
        "automl.cli.speed.speed",
        parser=_PROGRAM,
    ),
    Action(
        "space",
        PREPARE,
        "Show the search space on this hardware.",
        "Show the search space of a configuration, and what this hardware leaves out and why.",
        ("automl space configs/nmt.yaml", "automl space configs/nmt.yaml space=auto"),
        (*CONFIG, JSON),
        "automl.cli.space.space",
    ),
)
