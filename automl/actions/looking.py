"""Actions that only look at sweeps, or write what they see elsewhere."""

from __future__ import annotations

from typing import Final

from .action import Action, Argument
from .arguments import ARTIFACTS, JSON, STORE, SWEEP_OR_NEWEST, TRIAL_OR_BEST, output
from .headings import CLOSER, EVERY_DAY

LOOKING: Final = (
    Action(
        "status",
        EVERY_DAY,
        "Show the progress of a sweep.",
        "Show the progress of a sweep, also while it runs.",
        ("automl status nmt", "automl status nmt --json"),
        (SWEEP_OR_NEWEST, STORE, JSON),
        "automl.cli.looking.status",
        "read",
    ),
    Action(
        "watch",
        EVERY_DAY,
        "Watch a running sweep live.",
        "Watch a running sweep from another terminal. Ctrl-C ends the view, not the sweep.",
        ("automl watch nmt",),
        (
            SWEEP_OR_NEWEST,
            STORE,
            Argument(
                "interval", float, "Seconds between updates.", "--interval", default=1.0, min=0.1
            ),
        ),
        "automl.cli.looking.watch",
        "read",
    ),
    Action(
        "trials",
        EVERY_DAY,
        "List the trials of a sweep.",
        "List the trials of a sweep with their configurations and metrics.",
        ("automl trials nmt", "automl trials nmt --json | jq '.[] | select(.failure)'"),
        (SWEEP_OR_NEWEST, STORE, JSON),
        "automl.cli.looking.trials",
        "read",
    ),
    Action(
        "best",
        EVERY_DAY,
        "Show the best configuration.",
        """Show the best configuration beside the default one.

        A trial's value (`value` in the JSON) is what it has returned; if it has only reported,
        its best report, or the last one if the goal ends in "at the end". `metrics` are those of
        its last report and of what it returned.

        If a model of all trials expects more of another configuration, it is named first.
        `recommended` in the JSON is that configuration, its expected value and an interval that
        holds it with 90% probability.""",
        ("automl best nmt", "automl best nmt --json | jq .params"),
        (SWEEP_OR_NEWEST, STORE, JSON),
        "automl.cli.looking.best",
        "read",
    ),
    Action(
        "report",
        EVERY_DAY,
        "Write the report of a sweep as an HTML file.",
        "Write the report of a sweep as one HTML file that works offline, also while it runs.",
        ("automl report nmt", "automl report nmt -o /tmp/nmt.html"),
        (
            SWEEP_OR_NEWEST,
            STORE,
            output("SWEEP.html", "FILE", "File to write."),
        ),
        "automl.cli.results.report",
        "read",
    ),
    Action(
        "list",
        EVERY_DAY,
        "List the sweeps of a store.",
        "List the sweeps of a store, the newest one last.",
        ("automl list", "automl list --store postgresql://host/runs --json"),
        (STORE, JSON),
        "automl.cli.looking.list_sweeps",
        "read",
    ),
    Action(
        "logs",
        CLOSER,
        "Show the output of a trial.",
        """Show what one rank of a trial has printed, and the traceback if it raised an exception.

        A trial that ran inline has printed to the terminal of its sweep.

        Colours are left out, and other control characters are escaped.""",
        (
            "automl logs nmt 7",
            "automl logs nmt 7 --rank 1",
            "automl logs 7                 of the newest sweep",
            "automl logs nmt               the newest trial",
        ),
        (
            SWEEP_OR_NEWEST,
            Argument("trial", int, metavar="[TRIAL]", min=0),
            Argument("rank", int, "Rank of a trial that has several.", "--rank", default=0, min=0),
            Argument(
                "attempt",
                int,
                "Attempt of a trial that was retried.  [default: the last]",
                "--attempt",
                min=1,
            ),
            STORE,
        ),
        "automl.cli.looking.logs",
    ),
    Action(
        "studio",
        EVERY_DAY,
        "See every sweep of a store in a browser.",
        """Serve every sweep of a store as a web application. Ctrl-C ends it, not the sweeps.

        It prints one address, which holds the token of this studio. Only this machine can reach
        it. From another one: ssh -L PORT:127.0.0.1:PORT HOST.""",
        ("automl studio", "automl studio --store postgresql://host/runs --port 8800 --open"),
        (
            STORE,
            Argument(
                "port",
                int,
                "Port to listen on.  [default: any]",
                "--port",
                default=0,
                min=0,
                max=65535,
            ),
            Argument("open_browser", bool, "Open the page in a browser.", "--open", default=False),
        ),
        "automl.cli.studio.studio",
    ),
    Action(
        "export",
        EVERY_DAY,
        "Write the best model, its configuration and a model card.",
        """Write the model of the best trial: weights, configuration and a model card.

        The weights of a function or a program are the files that it has written into the folders
        of the trial, and what `trial.save` has saved.""",
        (
            "automl export nmt",
            "automl export nmt --trial 7 -o models/seven",
            "automl export nmt --artifacts s3://bucket/sweeps      fetch it from there, "
            "keep a copy there",
        ),
        (SWEEP_OR_NEWEST, STORE, output("SWEEP-model"), TRIAL_OR_BEST, ARTIFACTS, JSON),
        "automl.cli.results.export",
        "read",
    ),
)
