"""Our side of `benchmarks/training/sockeye.py`: one timed training or translation.

python benchmarks/peers/translation_driver.py train|translate RESULT.json OPTIONS_AS_JSON
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import time
from pathlib import Path
from typing import Any

Rows = list[tuple[float, float, int]]


def train(options: dict[str, Any]) -> dict[str, Any]:
    """Train one trial, or the rest of it; a row for each update, and the final metrics.

    With `no_bias` the biases of attention stay zero, because Sockeye has none. With `export` the
    model is exported to `folder`/export.
    """
    from workers.batches import BatchShare
    from workers.context import Context
    from workers.export import export
    from workers.protocol import Assignment
    from workers.run import run
    from workers.training.trainer import Trainer
    from workers.workloads import WORKLOADS

    rows: Rows = [(time.process_time(), time.time(), 0)]
    update = Trainer._update

    def watched(self: Trainer, place: Any, share: BatchShare) -> None:
        update(self, place, share)
        if options.get("no_bias"):
            _clear_biases(self.strategy.parameters())
        rows.append(
            (time.process_time(), time.time(), sum(len(part["source"]) for part in share.parts))
        )

    Trainer._update = watched  # type: ignore[method-assign]
    one = Assignment(
        "peer",
        0,
        1,
        {},
        "translation",
        options["folder"],
        options["data"],
        options["fixed"],
        options["seed"],
        threads=options["threads"],
        resume=options.get("resume", False),
    )
    outcome = run(Context(one))
    if outcome.failure:
        raise SystemExit(f"{outcome.message}\n{outcome.details.get('traceback')}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if options.get("export"):
        workload = WORKLOADS.get("translation")(
            {}, options["data"], options["fixed"], seed=options["seed"]
        )
        shutil.rmtree(Path(one.folder) / "export", ignore_errors=True)
        export(workload, Path(one.folder), Path(one.folder) / "export", outcome.metrics)
    return {"steps": rows, "metrics": dict(outcome.metrics), "peak_bytes": peak}


def _clear_biases(parameters: dict[str, Any]) -> None:
    import torch

    with torch.no_grad():
        for name, parameter in parameters.items():
            if "attention." in name and name.endswith("bias"):
                parameter.zero_()


def translate(options: dict[str, Any]) -> dict[str, Any]:
    """Translate a file by an exported model; two rows, before and after."""
    import torch

    from workers.workloads.translation.beam_search import SearchOptions
    from workers.workloads.translation.translator import Translator

    torch.set_num_threads(options["threads"])
    torch.set_float32_matmul_precision("medium")  # exact to 1e-6, as in training
    # Sockeye divides by the length, and stops at about the mean ratio of lengths + 2 deviations.
    search = SearchOptions(
        options["beam"], 1.0, length_base=0.0, max_ratio=1.3, max_extra=2, batch=16
    )
    with Path(options["source"]).open() as file:
        lines = file.read().splitlines()
    model = Path(options["model"])
    translate = Translator.load(model).translate
    rows: Rows = [(time.process_time(), time.time(), 0)]
    found = translate(lines, search)
    rows.append((time.process_time(), time.time(), len(lines)))
    Path(options["output"]).write_text("".join(line + "\n" for line in found))
    return {"steps": rows, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main() -> None:
    commands = {"train": train, "translate": translate}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=list(commands))
    parser.add_argument("result", type=Path, metavar="RESULT.json")
    parser.add_argument("options", type=json.loads, metavar="OPTIONS", help="a JSON object")
    given = parser.parse_args()
    given.result.write_text(json.dumps(commands[given.command](given.options)))


if __name__ == "__main__":
    main()
