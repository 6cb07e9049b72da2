"""Contests: workloads beside plain loops that do the same, and the knobs a sweep may set."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.paired import Timed
from benchmarks.training import plain_loops
from search_spaces import Space
from search_spaces.hardware import detect
from search_spaces.parameters import parameter_from_dict
from workers.context import Context
from workers.protocol import Assignment, Limits, Outcome
from workers.run import run
from workers.workloads import WORKLOADS
from workers.workloads.feature_extraction.extractor import ResNet50, blocks, build
from workers.workloads.graph_embedding import data as graph_data
from workers.workloads.sentiment import data as review_data

SLOWEST_DEFAULT = 1.05  # ratios to the seconds of the plain loop
SLOWEST_BEST = 1 / 1.3
SLOWEST_GRAPH = 1 / 2
REAL = {
    "image_classification": ("cifar10", "cifar10"),
    "sentiment": ("imdb", "imdb"),
    "graph_embedding": ("triples", "kg/FB15k-237"),
}
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Contest:
    """A plain loop and the workload that does the same.

    Args:
        plain: runs the loop and returns its seconds.
        knobs: the parameters of the workload's space that a sweep may set.
        seconds: the same seconds, from the metrics of the workload.
        constraints: what the sweep must keep.
        default_bound: limit on the ratio of the default to the loop.
        best_bound: limit on the ratio of the best configuration to the loop.
    """

    title: str
    unit: str
    workload: str
    plain: Timed
    knobs: tuple[str, ...]
    seconds: Callable[[Mapping[str, float]], float]
    data: Mapping[str, Any]
    fixed: Mapping[str, Any]
    constraints: tuple[str, ...] = ()
    train_seconds: float | None = None
    default_bound: float = SLOWEST_DEFAULT
    best_bound: float = SLOWEST_BEST

    def attempt(self, params: Params, fixed: Params, train_seconds: float | None = None) -> Outcome:
        """Run the workload on one thread."""
        with tempfile.TemporaryDirectory() as folder:
            bounds = Limits(train_seconds=train_seconds)
            one = Assignment(
                "speed", 0, 1, params, self.workload, folder, self.data, fixed, limits=bounds
            )
            return run(Context(one))

    def ours(self, params: Params) -> Timed:
        """A function that runs a configuration, which must not fail, and returns its seconds."""

        def timed() -> float:
            outcome = self.attempt(params, self.fixed, self.train_seconds)
            if outcome.failure:
                trace = outcome.details.get("traceback")
                raise SystemExit(f"{self.workload} {dict(params)}: {outcome.message}\n{trace}")
            return self.seconds(outcome.metrics)

        return timed

    def space(self) -> Space:
        """The space of the knobs on this hardware."""
        known = WORKLOADS.get(self.workload).space(detect()).parameters
        taken = [known[name].to_dict() for name in self.knobs if name in known]
        for one in taken:  # a parent that is not tuned keeps its default
            one["when"] = {
                name: values
                for name, values in (one.get("when") or {}).items()
                if name in self.knobs
            }
        return Space(*map(parameter_from_dict, taken))


_UPDATES_ARE_TIMED = {
    "validation": 0.01,
    "test": False,
    "max_epochs": 1000,
    "checkpoint_seconds": 1e9,
}


def _updates(count: int) -> dict[str, Any]:
    """Two windows of `count` updates; the last report is about the second, which is warm."""
    return {**_UPDATES_ARE_TIMED, "evaluate_updates": count, "max_updates": 2 * count}


def vgg(updates: int, root: Path | None) -> Contest:
    section = section_of("image_classification", root) or {"train": 1500, "test": 500}

    def plain() -> float:
        x = torch.rand(640, 3, 32, 32)
        y = torch.randint(10, (640,))
        return plain_loops.seconds_per_update(plain_loops.PlainVgg, x, y, updates)

    knobs = ("precision", "memory_format", "matmul_precision")
    return Contest(
        "VGG-style network, 64 images a batch",
        "seconds of an update",
        "image_classification",
        plain,
        knobs,
        lambda metrics: metrics["seconds_per_update"],
        section,
        _updates(updates),
    )


def gru(updates: int, root: Path | None) -> Contest:
    real = section_of("sentiment", root)
    section = real or {"train": 4000, "test": 1000}

    def plain() -> float:
        train = review_data.load(section).train
        words = torch.from_numpy(train.padded(torch.arange(len(train)).numpy(), 150, 30_000))
        labels = torch.from_numpy(train.labels)
        return plain_loops.seconds_per_update(plain_loops.PlainGru, words, labels, updates)

    knobs = ("precision", "matmul_precision", "layout")
    return Contest(
        "GRU, 64 reviews of 150 words a batch",
        "seconds of an update",
        "sentiment",
        plain,
        (*knobs, "batching") if real else knobs,  # generated reviews are too short for buckets
        lambda metrics: metrics["seconds_per_update"],
        section,
        _updates(updates),
    )


def features(updates: int, root: Path | None) -> Contest:
    def plain() -> float:
        model = ResNet50().eval()
        model.load_state_dict(build(0).state_dict())
        x = torch.cat(list(blocks({}, images, images, 224)))
        return plain_loops.features_seconds(model, x, 32)

    images = 32 if updates > 8 else 16
    fixed = {"images": images, "passes": 1}
    knobs = ("precision", "memory_format", "fold_batch_norm", "quantization")
    return Contest(
        "ResNet-50 features, 3x224x224",
        "seconds of 1,000 images",
        "feature_extraction",
        plain,
        (*knobs, "matmul_precision", "batch_size"),
        lambda metrics: metrics["seconds_per_1000_images"],
        {},
        fixed,
        constraints=("cosine >= 0.999",),
    )


def graph(updates: int, root: Path | None) -> Contest:
    section = section_of("graph_embedding", root) or {"families": 1200}
    loaded = graph_data.load(section)
    edges = torch.from_numpy(loaded.train)
    sizes = (len(loaded.entities), len(loaded.relations))
    fixed = {
        "evaluate_epochs": 1000,
        "max_epochs": 1000,
        "evaluate_edges": 10,
        "test": False,
        "regularization": 0.0,
    }
    return Contest(
        f"ComplEx of 400 numbers, 1,000 negatives, {sizes[0]} entities, {len(edges)} edges",
        "seconds of an edge",
        "graph_embedding",
        lambda: plain_loops.dense_complex_seconds(edges, sizes, updates),
        ("precision", "matmul_precision", "partitions"),
        lambda metrics: 1 / metrics["edges_per_second"],
        section,
        fixed,
        train_seconds=0.1 * updates,
        default_bound=SLOWEST_GRAPH,
        best_bound=SLOWEST_GRAPH,
    )


CONTESTS = {"vgg": vgg, "gru": gru, "features": features, "graph": graph}


def section_of(workload: str, root: Path | None) -> dict[str, Any]:
    """The `data` section of real data under a folder; empty if there are none."""
    name, folder = REAL[workload]
    return {"name": name, "dir": str(root / folder)} if root and (root / folder).exists() else {}
