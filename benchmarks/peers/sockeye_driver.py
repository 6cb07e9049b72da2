"""Runs a command of Sockeye in its own environment and writes what it took, in CPU seconds of the process.

python sockeye_driver.py train|translate|score|prepare_data RESULT.json [Sockeye's own options]
"""

import importlib
import json
import resource
import sys
import time


def main() -> None:
    command, result = sys.argv[1:3]
    rows: list[
        tuple[float, float, int]
    ] = []  # at the end of each step: CPU seconds, wall seconds, sentences
    module = importlib.import_module(f"sockeye.{command}")
    if command == "train":
        _watch(importlib.import_module("sockeye.training").EarlyStoppingTrainer, "_step", rows)
    if command == "translate":
        _watch(importlib.import_module("sockeye.inference").Translator, "translate", rows)
    sys.argv = [f"sockeye-{command}", *sys.argv[3:]]
    module.main()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with open(result, "w") as file:
        json.dump({"steps": rows, "peak_bytes": peak}, file)


def _watch(kind: type, name: str, rows: list[tuple[float, float, int]]) -> None:
    """Note each call of a method; before the first one, a row with no sentences."""
    method = getattr(kind, name)

    def watched(self: object, batch: object, *args: object, **kwargs: object) -> object:
        if not rows:
            rows.append((time.process_time(), time.time(), 0))
        found = method(self, batch, *args, **kwargs)
        count = batch.samples if hasattr(batch, "samples") else len(batch)  # type: ignore[arg-type]
        rows.append((time.process_time(), time.time(), int(count)))
        return found

    setattr(kind, name, watched)


if __name__ == "__main__":
    main()
