"""Arguments that several actions take."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .action import Argument

STORE_FOLDER: Final = ".automl"
MAX_NAME: Final = 200  # characters

SWEEP: Final = Argument("sweep", "sweep", "Name of the sweep.", required=True)
SWEEP_OR_NEWEST: Final = Argument("sweep", "sweep", "Name of the sweep; by default the newest.")
STORE: Final = Argument(
    "store",
    help="Folder or database URL of the sweeps.",
    flag="--store",
    metavar="URL",
    default=STORE_FOLDER,
    on="shell",
)
JSON: Final = Argument(
    "as_json", bool, "Print JSON and nothing else.", "--json", default=False, on="shell"
)
CONFIG: Final = (
    Argument("config", "file", metavar="CONFIG", required=True),
    Argument("overrides", metavar="[KEY=VALUE]...", many=True),
)
TRIAL: Final = Argument(
    "trial", int, "Number of the trial.", "--trial", metavar="N", required=True, min=0
)
TRIAL_OR_BEST: Final = Argument(
    "trial", int, "Number of a trial.  [default: the best one]", "--trial", metavar="N"
)
BY: Final = Argument(
    "by",
    help="Who wants it; by default the user and host of this process.",
    default="",
    max_length=MAX_NAME,
    on="http",
)
TRIALS: Final = Argument(
    "trials",
    int,
    "End after N trials, including failed ones and those of earlier runs.",
    "--trials",
    metavar="N",
    min=1,
)
TIME: Final = Argument(
    "time",
    "duration",
    "End after this time, including earlier runs, such as 10m or 1h30m.",
    "--budget",
    metavar="TIME",
)
# As words that the configuration reads and judges.
TRIALS_TEXT: Final = replace(TRIALS, type=str, min=None)
TIME_TEXT: Final = replace(TIME, name="budget", type=str)
ARTIFACTS: Final = Argument(
    "artifacts",
    help="Folder or URL where the files of trials are kept, such as s3://bucket/prefix; "
    "'none' for the store.",
    flag="--artifacts",
    metavar="URL",
)
OBJECTIVE: Final = Argument(
    "objective",
    "objective",
    "Function of your own to tune instead of a workload, such as train.py:objective. "
    "Without NAME, it is 'objective'.",
    "--objective",
    metavar="FILE[:NAME]",
)
SHELL: Final = Argument(
    "shell", bool, "Run the command after -- as a line of /bin/sh.", "--shell", default=False
)
SEED: Final = Argument("seed", str, "Seed of all random choices.", "--seed", "N")
DISPATCHING: Final = (
    Argument(
        "dispatcher",
        ("auto", "ray", "local", "inline", "agents"),
        "Run trials on Ray, in processes of this machine, in this process for debugging, or only "
        "by agents elsewhere (`automl ask`).",
        "--dispatcher",
        default="ray",
    ),
    Argument(
        "ray_address",
        help="Ray cluster to use, 'auto' to find it.",
        flag="--ray-address",
        metavar="ADDR",
    ),
)
METRICS_ADDRESS: Final = Argument(
    "metrics",
    help="Serve metrics for Prometheus there; without HOST, to this machine only.",
    flag="--metrics",
    metavar="[HOST:]PORT",
)
LOG_JSON: Final = Argument(
    "log_json",
    bool,
    "Write JSON lines to standard error instead of the live view.",
    "--log-json",
    default=False,
)


def output(default: str, metavar: str = "DIR", help: str = "A new folder.") -> Argument:
    """Option `--output`."""
    return Argument("output", str, f"{help}  [default: {default}]", "--output -o", metavar)
