"""Arguments that several actions take."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from automl.core.budget import LIMITS
from automl.core.spec import DISPATCHERS, KEYS

from .action import Argument

STORE_FOLDER: Final = KEYS["store"].default
_LINK: Final = re.compile(r" See \[[^]]*\]\([^)]*\)\.")

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
# By the name of an option, its path in a configuration and its key.
FLAGS: Final = {
    key.flag.split()[0][2:].replace("-", "_"): (path, key)
    for path, key in {**KEYS, **{f"budget.{name}": key for name, key in LIMITS.items()}}.items()
    if key.flag
}


def setting(flag: str) -> Argument:
    """The option of a setting; its value is a text, which the configuration reads and judges."""
    _, key = FLAGS[flag]
    name, metavar = key.flag.split()
    default = f"  [default: {key.default}]" if key.default and isinstance(key.default, str) else ""
    return Argument(flag, str, _LINK.sub("", key.help) + default, name, metavar)


TRIALS: Final = replace(setting("trials"), type=int, min=1)
TIME: Final = replace(setting("budget"), name="time", type="duration")
ARTIFACTS: Final = setting("artifacts")
OBJECTIVE: Final = Argument(
    "objective",
    "objective",
    "Function of your own to tune instead of a workload, such as train.py:objective. "
    "Without NAME, it is 'objective'.",
    "--objective",
    metavar="FILE[:NAME]",
)
DISPATCHING: Final = (
    replace(setting("dispatcher"), type=DISPATCHERS, metavar=None),
    setting("ray_address"),
)


def output(default: str, metavar: str = "DIR", help: str = "A new folder.") -> Argument:
    """Option `--output`."""
    return Argument("output", str, f"{help}  [default: {default}]", "--output -o", metavar)
