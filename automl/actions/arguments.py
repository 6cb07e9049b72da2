"""Arguments that several actions take."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from typing import Final

from automl.core.budget import LIMITS
from automl.core.spec import KEYS

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
# By the name of a flag, its path in a configuration and its key.
FLAGS: Final = {
    key.flag.split()[0][2:]: (path, key)
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
DEFAULT_DISPATCHER: Final = "ray" if find_spec("ray") else "local"
DISPATCHING: Final = (
    Argument(
        "dispatcher",
        ("auto", "ray", "local", "inline", "agents"),
        "Run trials on Ray, in processes of this machine, in this process for debugging, or only "
        "by agents elsewhere (`automl ask`). If Ray is not installed, the default is local.",
        "--dispatcher",
        default=DEFAULT_DISPATCHER,
    ),
    Argument(
        "ray_address",
        help="Ray cluster to use, 'auto' to find it.",
        flag="--ray-address",
        metavar="ADDR",
    ),
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
