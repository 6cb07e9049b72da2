"""Actions that only look at sweeps, or write what they see elsewhere."""

from __future__ import annotations

from typing import Final

from .action import Action, Argument
from .arguments import ARTIFACTS, JSON, STORE, SWEEP, SWEEP_OR_NEWEST, TRIAL_OR_BEST, output
from .headings import CLOSER, EVERY_DAY, TAKE_OUT

SERVING: Final = (
    Argument(
        "port", int, "Port to listen on.  [default: any]", "--port", default=0, min=0, max=65535
    ),
    Argument(
        "listen",
        help="Address of this machine that others can reach, such as 10.0.0.5; needs --tls-cert "
        "and --tls-key, or --insecure.  [default: this machine only]",
        flag="--listen",
        metavar="ADDRESS",
    ),
    Argument("tls_cert", str, "Certificate for TLS, PEM.", "--tls-cert", "FILE"),
    Argument("tls_key", str, "Its private key, PEM.", "--tls-key", "FILE"),
    Argument(
        "insecure",
        bool,
        "Listen without TLS: whoever sees the network's traffic can read the token.",
        "--insecure",
        default=False,
    ),
    Argument(
        "role",
        ("operator", "viewer", "agent"),
        "Whose address to print: all may read, an operator acts on sweeps, an agent runs trials.",
        "--token",
        default="operator",
    ),
    Argument(
        "new_tokens",
        bool,
        "Replace the tokens; the earlier ones stop working.",
        "--new-tokens",
        default=False,
    ),
    Argument("open_browser", bool, "Open the page in a browser.", "--open", default=False),
)

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
        "compare",
        CLOSER,
        "Compare sweeps.",
        "Compare sweeps with the same first goal: best value, number of trials and time.",
        ("automl compare nmt nmt-2",),
        (
            Argument("sweeps", "sweep", metavar="SWEEP SWEEP...", required=True, many=True),
            STORE,
            JSON,
        ),
        "automl.cli.looking.compare",
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
        "predict",
        CLOSER,
        "Predict what a configuration would reach.",
        """Ask the surrogates of a sweep what another run of a configuration would reach.

        A parameter that is not named has its default. Each metric has a 90% interval, and a doubt
        if its surrogate predicts trials that were left out badly. `failures` are probabilities.""",
        ("automl predict nmt learning_rate=3e-3 width=96",),
        (
            SWEEP,
            Argument("settings", metavar="[KEY=VALUE]...", many=True, on="shell"),
            Argument("params", "params", "By parameter.", required=True, on="http"),
            STORE,
            JSON,
        ),
        "automl.cli.looking.predict",
        "read",
    ),
    Action(
        "studio",
        EVERY_DAY,
        "See every sweep of a store in a browser.",
        """Serve every sweep of a store as a web application. Ctrl-C ends it, not the sweeps.

        It prints one address, which holds the token of an operator, who may stop trials and more;
        give a viewer's to others. The tokens are kept in the folder studio/ of the store, readable
        by you alone. Only this machine can reach it. From another one:
        ssh -L PORT:127.0.0.1:PORT HOST.""",
        (
            "automl studio",
            "automl studio --store postgresql://host/runs --port 8800 --open",
            "automl studio --token viewer",
        ),
        (STORE, *SERVING),
        "automl.cli.studio.studio",
    ),
    Action(
        "dashboard",
        CLOSER,
        "See one sweep in a browser.",
        "Open the studio (`automl studio`) at a sweep. Ctrl-C ends it, not the sweep.",
        ("automl dashboard nmt", "automl dashboard nmt --port 8800 --open"),
        (SWEEP_OR_NEWEST, STORE, *SERVING),
        "automl.cli.studio.dashboard",
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
    Action(
        "publish",
        TAKE_OUT,
        "Write a sweep for TensorBoard, MLflow or Weights & Biases.",
        """Write the curves, configurations and results of every trial for another tool.

        Data that the tool already has stays; in MLflow, runs are completed. To write a sweep while
        it runs, set `trackers: [mlflow]` in its configuration.""",
        (
            "automl publish nmt tensorboard --to runs/nmt     then: tensorboard --logdir runs/nmt",
            "automl publish nmt mlflow --to http://127.0.0.1:5000",
        ),
        (
            SWEEP_OR_NEWEST,
            Argument("target", ("tensorboard", "mlflow", "wandb"), required=True),
            STORE,
            Argument(
                "to",
                help="Folder for TensorBoard, tracking URI for MLflow, project for Weights & "
                "Biases.",
                flag="--to",
                metavar="TARGET",
            ),
        ),
        "automl.cli.results.publish",
        "read",
    ),
)
