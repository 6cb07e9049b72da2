"""Three workloads beside the published seconds of a comparison of frameworks.

The published seconds are PyTorch's on one P100 (https://github.com/ilkarman/DeepLearningFrameworks):
10 epochs of a VGG-style network on CIFAR-10, 1,000 images through ResNet-50, and 3 epochs of a GRU
on IMDB. The data here are generated in the same sizes, so accuracies mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.common.bounds import Claim, at_most
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target
from benchmarks.training.gpu_stages._trials import attempt

PUBLISHED = {"image_classification": 51.0, "feature_extraction": 1.9, "sentiment": 16.0}
TUNED: Mapping[str, Mapping[str, Any]] = {
    "image_classification": {
        "precision": "bf16",
        "memory_format": "channels_last",
        "cudnn_autotune": True,
        "loader_workers": 1,
    },
    "feature_extraction": {
        "precision": "bf16",
        "memory_format": "channels_last",
        "fold_batch_norm": True,
        "graph": "traced",
        "batch_size": 64,
        "cudnn_autotune": True,
    },
    "sentiment": {
        "layout": "time_major",
        "batching": "bucketed",
        "precision": "bf16",
        "loader_workers": 1,
    },
}
DATA: Mapping[str, Mapping[str, Any]] = {
    "image_classification": {"train": 50_000, "test": 10_000},
    "feature_extraction": {},
    "sentiment": {"train": 25_000, "test": 1_000},
}


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    found = []
    for name in PUBLISHED:
        for how, params in (("trial 0", {}), ("tuned", TUNED[name])):
            settings = {"workload": name, "params": dict(params)}
            case = Case(f"{name}, {how}", settings, f"{name} {how}", 180.0, quick=how == "tuned")
            found.append(case)
    return found


def measure(target: Target, case: Case) -> Row:
    """Seconds of training (of 1,000 images for features), and the quality."""
    from workers.workloads import WORKLOADS

    name = case.settings["workload"]
    params = dict(case.settings["params"])
    smallest = WORKLOADS.get(name).smallest
    data = target.size(DATA[name], smallest.get("data", {}))
    fixed = {"validation": 0.0} if "train" in DATA[name] else {}
    if target.tiny:
        fixed = {**smallest.get("fixed", {})}
        params.pop("cudnn_autotune", None)
    outcome, _ = attempt(target, None, params, data, name, fixed)
    if outcome.failure:
        raise RuntimeError(f"{outcome.failure}: {outcome.message}")
    metrics = outcome.metrics
    if name == "feature_extraction":
        seconds = metrics["seconds_per_1000_images"]
        return {"workload": name, "seconds": seconds, "quality": metrics["cosine"]}
    quality = metrics["accuracy"]
    return {"workload": name, "seconds": metrics["train_seconds"], "quality": quality}


def claims(rows: Rows) -> list[Claim]:
    """The tuned configuration needs no more than the published seconds."""
    return [
        at_most(
            f"seconds of {name}, published for a P100",
            rows.get(f"{name}, tuned", {}).get("seconds"),
            limit,
        )
        for name, limit in PUBLISHED.items()
    ]


def line(row: Row) -> str:
    published = PUBLISHED[row["workload"]]
    return f"{row['seconds']:8.2f} s, published {published:.1f} s, quality {row['quality']:.4f}"


STAGE = Stage("published seconds of three models", cases, measure, claims, line)
