"""The process that measures: `python -m benchmarks.training.gpu_stages._child TARGET`.

It reads lines of JSON, each with the name of a stage and a case, and answers each with a row as a
line of JSON. It ends with its standard input.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from typing import Any, Final

from benchmarks.common.options import parser
from benchmarks.training.gpu_stages._case import Case, Row, Stage, Target

_REASONS: Final = ("nvidia-smi", "--query-gpu=clocks_event_reasons.active", "--format=csv,noheader")
# Bits of nvidia-smi's reasons: power brake, slowdowns by heat and by hardware.
THROTTLED: Final = 0x8 | 0x20 | 0x40 | 0x80


def slowed_down() -> bool:
    """Whether heat or power slow a GPU down now."""
    found = ""
    with suppress(OSError):
        found = subprocess.run(_REASONS, capture_output=True, text=True).stdout
    return any(int(one, 16) & THROTTLED for one in found.split() if one.startswith("0x"))


def stage_of(name: str) -> Stage:
    """The stage of a name, which is that of its file."""
    stage: Stage = importlib.import_module(f"benchmarks.training.gpu_stages.{name}").STAGE
    return stage


def measured(target: Target, stage: str, case: Case) -> Row:
    """The row of a case, with the seconds that it took; a failure is a row, too.

    It is marked if a GPU was slowed down before or after.
    """
    slow, begun = slowed_down(), time.perf_counter()
    try:
        row = stage_of(stage).measure(target, case)
    except Exception as error:
        traceback.print_exc()
        text = str(error).strip().splitlines()
        row = {"failure": f"{type(error).__name__}: {text[0] if text else ''}"[:300]}
    row["took"] = round(time.perf_counter() - begun, 1)
    return {**row, "throttled": True} if slow or slowed_down() else row


def main() -> None:
    options = parser(__doc__)
    options.add_argument("target", type=json.loads, help="the fields of `Target` as JSON")
    target = Target(**options.parse_args().target)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print to standard error
    for line in sys.stdin:
        question: dict[str, Any] = json.loads(line)
        row = measured(target, question["stage"], Case(**question["case"]))
        answers.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
