"""The process that acts for the studio: it writes to the ledger, so the server only reads.

    python -m automl.studio.action_process STORE

If no controller runs, it may load the suggester, so that the server needs no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from automl.actions import OPERATIONS
from automl.ledger import Ledger

from .child import serve

THREADS: Final = 32  # requests that wait for an answer at once
_SPECIAL: Final = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def perform(ledger: Ledger, question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Perform an operation.

    Args:
        ledger: open for writing.
        question: `operation` and `sweep` by name, `trial` (a number or None), and the `body`.
    """
    _, operation = OPERATIONS[question["operation"]]
    body = dict(question["body"])
    if operation.of_trial:
        body["trial"] = question["trial"]
    if isinstance(metrics := body.get("metrics"), Mapping):
        body["metrics"] = {name: _SPECIAL.get(value, value) for name, value in metrics.items()}
    elif metrics is not None:
        body["metrics"] = _SPECIAL.get(metrics, metrics)
    return operation.perform(ledger, question["sweep"], **body)


def main() -> None:
    """Answer until standard input ends."""
    ledger = Ledger.open(sys.argv[1])
    serve(lambda question: perform(ledger, question), THREADS)


if __name__ == "__main__":
    main()
