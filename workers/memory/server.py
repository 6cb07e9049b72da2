"""A process that estimates peak memory for a controller: `python -m workers.memory.server`.

It reads lines of JSON and writes lines of JSON. The first line has the keys `workload`, `data`,
`fixed` and `device`. Each later line is a configuration: `key`, `params`, `ranks`. The answer has
`key` and the fields of `Estimate`, or `key` and `error`. The process ends with its standard input,
and so with the controller.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TextIO

from workers.failures import one_line


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
    from workers.workloads import WORKLOADS

    from .estimate import estimate

    header: Mapping[str, Any] = json.loads(questions.readline() or "{}")
    for line in questions:
        question = json.loads(line)
        kind: Any = WORKLOADS.get(header["workload"])
        try:
            workload = kind(question["params"], header["data"], header["fixed"])
            answer = asdict(estimate(workload, question["ranks"], header["device"]))
        except Exception as error:  # fake tensors cannot do all that a model may do
            answer = {"error": one_line(error)}
        answers.write(json.dumps({"key": question["key"], **answer}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
