"""Runs a command of Sockeye in its own environment and writes its CPU seconds and peak memory.

PYTHON benchmarks/peers/sockeye_driver.py COMMAND RESULT.json [options of Sockeye]
"""

import argparse
import importlib
import json
import resource
import sys
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["train", "translate", "score", "prepare_data"])
    parser.add_argument("result", metavar="RESULT.json")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of Sockeye")
    given = parser.parse_args()
    # At the end of each step: CPU seconds, wall seconds, sentences.
    rows: list[tuple[float, float, int]] = []
    module = importlib.import_module(f"sockeye.{given.command}")
    if given.command == "train":
        _watch(importlib.import_module("sockeye.training").EarlyStoppingTrainer, "_step", rows)
    if given.command == "translate":
        _watch(importlib.import_module("sockeye.inference").Translator, "translate", rows)
    sys.argv = [f"sockeye-{given.command}", *given.options]
    module.main()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with open(given.result, "w") as file:
        json.dump({"steps": rows, "peak_bytes": peak}, file)


def _watch(kind: type, name: str, rows: list[tuple[float, float, int]]) -> None:
    """Add a row after each call of a method, and one without sentences before the first."""
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
