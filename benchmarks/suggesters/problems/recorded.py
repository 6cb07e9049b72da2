"""Real trainings of our workloads: complete grids, recorded on one thread."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import store
from benchmarks.suggesters.problems.base import Metrics, Params, Problem, problem
from search_spaces import Choice, Space
from search_spaces.errors import TrialFailure

FOLDER = Path(__file__).parent / "recorded"
QUALITY = {"quality"}


@dataclass(frozen=True)
class Recording:
    """A grid over one workload; every parameter is a choice, so that the table is complete."""

    name: str
    workload: str
    goal: str
    space: Space
    data: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.jsonl"

    def rows(self) -> dict[Hashable, dict[str, Any]]:
        """The recorded rows by configuration."""
        return {self.space.key(row["params"]): row for row in store.read(self.path)}


def recordings() -> list[Recording]:
    rates = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2]
    sentiment = Space(
        Choice("learning_rate", rates, ordered=True, affects=QUALITY),
        Choice("batch_size", [8, 32, 128], ordered=True),
        Choice("cell", ["gru", "lstm", "qrnn"]),
        Choice("hidden_size", [8, 24, 72], ordered=True),
        Choice("pooling", ["last", "mean", "max"], affects=QUALITY),
        Choice("dropout", [0.0, 0.4], ordered=True, affects=QUALITY),
    )
    images = Space(
        Choice("learning_rate", [1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3], ordered=True, affects=QUALITY),
        Choice("momentum", [0.5, 0.9, 0.97], ordered=True, affects=QUALITY),
        Choice("batch_size", [8, 32, 128], ordered=True),
        Choice("filters", [4, 8, 16], ordered=True),
        Choice("batch_norm", [False, True]),
        Choice("dropout", [0.0, 0.3], ordered=True, affects=QUALITY),
    )
    reviews = {"name": "generated", "train": 600, "test": 300}
    short = {"max_epochs": 2, "length": 24, "vocabulary": 500, "embedding_size": 16}
    pictures = {"name": "generated", "train": 400, "test": 200}
    small = {"max_epochs": 2, "dense_units": 32}
    return [
        Recording("sentiment_recorded", "sentiment", "minimize loss", sentiment, reviews, short),
        Recording(
            "images_recorded", "image_classification", "minimize loss", images, pictures, small
        ),
    ]


def as_problem(recording: Recording) -> Problem:
    rows = recording.rows()

    def metrics(params: Params) -> Metrics:
        row = rows[recording.space.key(params)]
        if row["failure"]:
            raise TrialFailure(row["failure"])
        found: Metrics = row["metrics"]
        return found

    return problem(recording.name, "tabular", recording.space, recording.goal, metrics)


def problems() -> list[Problem]:
    """The problems with a complete grid."""
    return [
        as_problem(r) for r in recordings() if r.path.exists() and len(r.rows()) == r.space.size
    ]
