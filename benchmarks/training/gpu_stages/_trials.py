"""Trials of the translation workload, for the stages that need one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.training.gpu_stages._case import Row, Target
from workers.batches import Batch
from workers.context import Context
from workers.protocol import Assignment, Outcome, Report
from workers.run import run
from workers.training.trainer import train
from workers.workload import Trainable
from workers.workloads.translation import Translation

MODEL = {"width": 512, "num_layers": 6, "num_heads": 8, "optimizer": "adam"}
TINY = {
    "width": 16,
    "num_layers": 2,
    "num_heads": 2,
    "optimizer": "adam",
    "vocabulary_size": 250,
    "eval_sentences": 4,
}
CORPUS: dict[str, Any] = {"name": "builtin"}
TINY_CORPUS: dict[str, Any] = {"train": 120, "valid": 8}


class Untested(Translation):
    """Translation without evaluation, which is no part of the figures."""

    __module__ = Translation.__module__  # the modules beside it read the data

    def evaluate(self, model: Any, device: Any) -> dict[str, float]:
        return {}


class RandomPairs(Untested):
    """Batches of random ids without padding: `data` has `rows`, `length` and `vocabulary`."""

    __module__ = Translation.__module__

    @cached_property
    def prepared(self) -> Any:
        return SimpleNamespace(vocabulary=range(int(self.data["vocabulary"])))

    def train_batches_from(self, epoch: int, index: int) -> Iterator[Batch]:
        shape = (int(self.data["rows"]), int(self.data["length"]))
        generator = torch.Generator().manual_seed(self.seed)
        ids = torch.randint(4, int(self.data["vocabulary"]), shape, generator=generator)
        while True:
            yield {"source": ids, "shifted": ids, "labels": ids}


def base(target: Target) -> dict[str, Any]:
    """The options of the translation model."""
    return dict(target.size(MODEL, TINY))


def corpus(target: Target) -> dict[str, Any]:
    """The `data` section of the corpus."""
    return dict(target.size(CORPUS, TINY_CORPUS))


def train_once(
    target: Target,
    params: Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    kind: type[Translation] = Untested,
) -> tuple[Outcome, list[Report]]:
    """One trial in this process; a failure raises RuntimeError."""

    def objective(context: Context) -> Any:
        workload = kind(context.params, context.assignment.data, {}, seed=context.seed)
        return train(workload, context)

    outcome, reports = attempt(target, objective, params, corpus(target) if data is None else data)
    if outcome.failure:
        raise RuntimeError(f"{outcome.failure}: {outcome.message}")
    return outcome, reports


def attempt(
    target: Target,
    objective: Callable[[Context], Any] | None,
    params: Mapping[str, Any],
    data: Mapping[str, Any],
    workload: str | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> tuple[Outcome, list[Report]]:
    """One attempt in this process, in a folder that is then removed."""
    reports: list[Report] = []
    with tempfile.TemporaryDirectory() as folder:
        one = Assignment("gpu", 0, 1, params, workload, folder, data, fixed or {}, gpus=target.gpus)
        outcome = run(Context(one, reports.append, device=target.device), objective)
    return outcome, reports


def speed(outcome: Outcome, reports: list[Report]) -> Row:
    """Tokens a second and seconds of an update in the last window, and the peak of memory."""
    last = reports[-1].metrics
    return {
        "tokens_per_second": last["items_per_second"],
        "seconds_per_update": last["seconds_per_update"],
        "peak_memory_bytes": outcome.peak_memory_bytes,
    }


def gang(target: Target, options: Mapping[str, Any]) -> tuple[Outcome, list[Report]]:
    """Two ranks of translation in processes of their own; both see the first GPU."""
    from workers.runtime.processes import run_gang

    reports: list[Report] = []
    with tempfile.TemporaryDirectory() as folder:
        one = Assignment(
            "gpu", 0, 1, options, "translation", folder, corpus(target), num_ranks=2,
            gpus=target.gpus / 2,
        )  # fmt: skip
        return run_gang(one, reports.append, lambda: None), reports


def state_of(workload: Trainable) -> Mapping[str, Any]:
    """The options of a workload as a strategy reads them."""
    from workers.training import options

    return options(workload)
