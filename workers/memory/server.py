"""A process that estimates peak memory for a controller: `python -m workers.memory.server`.

It reads lines of JSON and writes lines of JSON. The first line has the keys `workload`, `data`,
`fixed` and `device`. Each later line is a configuration: `key`, `params`, `ranks`. The answer has
`key` and the fields of `Estimate`, or `key` and `error`. The process ends with its standard input,
and so with the controller.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TextIO

from workers.failures import one_line
from workers.protocol import Params

Estimator = Callable[[Params, int], Any]


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print to standard error
    os.nice(5)  # trials come first
    import torch

    torch.set_num_threads(1)
    serve(sys.stdin, answers)


def serve(questions: TextIO, answers: TextIO) -> None:
    """Read what is estimated, then answer one configuration after the other."""
    header: Mapping[str, Any] = json.loads(questions.readline() or "{}")
    if not header:
        return
    estimate = _of_workload(header)
    for line in questions:
        question = json.loads(line)
        answer = _answer(estimate, question)
        answers.write(json.dumps({"key": question["key"], **answer}) + "\n")
        answers.flush()


def _of_workload(header: Mapping[str, Any]) -> Estimator:
    from workers.workloads import WORKLOADS

    from .estimate import estimate

    kind: Any = WORKLOADS.get(header["workload"])

    def of_params(params: Params, ranks: int) -> Any:
        workload = kind(params, header["data"], header["fixed"])
        return estimate(workload, ranks, header["device"])

    return of_params


def _answer(estimate: Estimator, question: Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = asdict(estimate(question["params"], question["ranks"]))
    except Exception as error:  # fake tensors cannot do all that a model may do
        return {"error": one_line(error)}
    return {**found, "parts": dict(found["parts"]), "modules": dict(found["modules"])}


if __name__ == "__main__":
    main()
