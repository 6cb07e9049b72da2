"""Does every parallelism strategy compute the function of `single`? Twenty updates of each on the same global batches.

    python benchmarks/strategies.py [--workload translation] [--updates 20]

Prints, for each strategy on 2 and where it applies 4 gloo ranks: the largest relative difference of the training loss
from `single` in fp32 (Adam), that of bf16 from `single` in fp32, and the largest difference of a final weight under
SGD. Keeps the table in benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from workers import checkpoint
from workers.context import Context
from workers.local import run_gang
from workers.protocol import Assignment, Report
from workers.run import run
from workers.workloads import WORKLOADS

RESULTS = Path(__file__).parent / "results"
WORKLOAD: dict[str, dict[str, Any]] = {
    "translation": {
        "width": 64, "num_layers": 2, "num_heads": 4, "batch_tokens": 1024, "dropout": 0.0, "learning_rate": 1e-3,
        "warmup_updates": 10, "tied_embeddings": False, "attention_layout": "interleaved",
    },
    "image_classification": {"dropout": 0.0},
}  # fmt: skip
ON_RANKS: dict[int, list[dict[str, Any]]] = {
    2: [
        {"parallelism": "ddp"},
        {"parallelism": "ddp", "accumulation": 3},
        {"parallelism": "fsdp", "reshard_after_forward": True},
        {"parallelism": "fsdp", "reshard_after_forward": False, "accumulation": 3},
        {"parallelism": "tensor"},
        {"parallelism": "pipeline", "schedule": "gpipe"},
        {"parallelism": "pipeline", "schedule": "1f1b"},
        {"parallelism": "embedding_server"},
    ],
    4: [
        {"parallelism": "ddp"},
        {"parallelism": "fsdp"},
        {"parallelism": "tensor"},
        {"parallelism": "pipeline"},
        {"parallelism": "embedding_server"},
        {"parallelism": "data_tensor"},
        {"parallelism": "data_pipeline"},
    ],
}
VARIANTS: dict[str, dict[str, Any]] = {
    "fp32": {"optimizer": "adam"},
    "bf16": {"optimizer": "adam", "precision": "bf16"},
    "sgd": {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 0.1},
}


def gang(folder: Path, workload: str, trials: list[dict[str, Any]], ranks: int) -> list[dict[str, Any]]:
    """Train each in turn in one gang; losses by update, or the failure, and the folder of each."""
    folder.mkdir()
    assignment = Assignment(
        "bench", 0, 1, {}, None, str(folder), data={"name": "builtin"}, seed=1, num_ranks=ranks,
        fixed={"workload": workload, "trials": trials},
    )  # fmt: skip
    outcome = run_gang(assignment, lambda report: None, lambda: None, in_turn)
    if outcome.failure:
        raise SystemExit(f"{outcome.message}\n{outcome.details.get('traceback')}")
    results: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())
    return results


def in_turn(context: Context) -> None:
    """One rank's part in all trials."""
    results = []
    for index, params in enumerate(context.assignment.fixed["trials"]):
        reports: list[Report] = []
        attempt = replace(context.assignment, params=params, folder=f"{context.folder}/{index}", fixed={})
        (context.folder / str(index)).mkdir(exist_ok=True)
        meeting = f"{context.rendezvous}-{index}" if context.world_size > 1 else ""
        inner = Context(attempt, reports.append, rank=context.rank, world_size=context.world_size, rendezvous=meeting)
        outcome = run(inner, train_quietly(context.assignment.fixed["workload"]))
        losses = [report.metrics["train_loss"] for report in reports if "train_loss" in report.metrics]
        results.append({"losses": losses, "failure": outcome.message if outcome.failure else None})
        print(params, outcome.failure, outcome.details.get("traceback", ""), flush=True)
    if context.rank == 0:
        (context.folder / "results.json").write_text(json.dumps(results))


def train_quietly(name: str) -> Any:
    """An objective that trains a workload and evaluates nothing."""
    kind: Any = WORKLOADS.get(name)

    class Quiet(kind):  # type: ignore[misc, valid-type]
        def evaluate(self, model: Any, device: Any) -> Mapping[str, float]:
            return {}

    return lambda c: Quiet(c.params, c.assignment.data, {}, seed=c.seed).run(c)


def difference(found: list[float], reference: list[float]) -> float:
    """Largest relative difference; infinite where a loss is missing."""
    if len(found) != len(reference):
        return float("inf")
    return max(abs(a / b - 1) for a, b in zip(found, reference, strict=True))


def weights_difference(found: Path, reference: Path) -> float:
    a, b = checkpoint.load(found), checkpoint.load(reference)
    if a is None or b is None or a.model.keys() != b.model.keys():
        return float("inf")
    return max(float((a.model[name] - tensor).abs().max()) for name, tensor in b.model.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="translation", choices=list(WORKLOAD))
    parser.add_argument("--updates", default=20, type=int)
    parser.add_argument("--ranks", default=[2, 4], type=int, nargs="+")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    common = {**WORKLOAD[chosen.workload], "max_updates": chosen.updates, "evaluate_updates": 1}
    folder = Path(tempfile.mkdtemp())
    variants = [{**common, **variant} for variant in VARIANTS.values()]
    alone = gang(folder / "1", chosen.workload, [{**v, "parallelism": "single"} for v in variants], 1)
    exact = alone[0]["losses"]
    title = f"{chosen.workload}: {chosen.updates} updates against single; loss {exact[0]:.4f} to {exact[-1]:.4f}"
    lines = [title, f"{'strategy':58} ranks  loss fp32  loss bf16  weights sgd"]
    lines.append(f"{'single':58}     1          -  {difference(alone[1]['losses'], exact):9.1e}            -")
    for ranks in chosen.ranks:
        strategies = ON_RANKS[ranks]
        trials = [{**variant, **strategy} for strategy in strategies for variant in variants]
        results = gang(folder / str(ranks), chosen.workload, trials, ranks)
        for index, strategy in enumerate(strategies):
            mine = results[3 * index : 3 * index + 3]
            text = " ".join(f"{key}={value}" for key, value in strategy.items())
            weights = weights_difference(folder / str(ranks) / str(3 * index + 2), folder / "1" / "2")
            loss, half = (difference(r["losses"], exact) for r in mine[:2])
            failure = next((r["failure"] for r in mine if r["failure"]), "")
            lines.append(f"{text:58} {ranks:5d}  {loss:9.1e}  {half:9.1e}  {weights:11.1e}  {failure}")
    text = "\n".join(lines)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"strategies-{chosen.workload}-{'-'.join(map(str, chosen.ranks))}.txt").write_text(text + "\n")


if __name__ == "__main__":
    main()
