"""Estimates of peak memory for a controller, in a process of its own: `python -m workers.memory.server`.

A line of JSON in, a line of JSON out. The first line says what is trained: `workload`, `data`, `fixed`, `device`; each
later one is a configuration: `key`, `params`, `ranks`. It is answered by `key` and the fields of `Estimate`, or by
`key` and `error`. The process ends with its standard input, and so with the controller.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TextIO


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    os.nice(5)  # trials come first
    import torch

    torch.set_num_threads(1)
    serve(sys.stdin, answers)


def serve(questions: TextIO, answers: TextIO) -> None:
    """Read what is trained, then answer one configuration after the other."""
    from workers.workloads import WORKLOADS

    about: Mapping[str, Any] = json.loads(questions.readline() or "{}")
    if not about:
        return
    kind = WORKLOADS.get(about["workload"])
    for line in questions:
        asked = json.loads(line)
        answer = _answer(kind, asked, about)
        answers.write(json.dumps({"key": asked["key"], **answer}) + "\n")
        answers.flush()


def _answer(kind: Any, asked: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    from .estimate import estimate

    try:
        workload = kind(asked["params"], about["data"], about["fixed"])
        found = asdict(estimate(workload, asked["ranks"], about["device"]))
    except (
        Exception
    ) as error:  # a model may do what fake tensors cannot; the trial itself will tell
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return {**found, "parts": dict(found["parts"]), "modules": dict(found["modules"])}


if __name__ == "__main__":
    main()
