"""Evaluation by all ranks: who evaluates what, on which model, and how it is stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from strategies import run_all
from toy import Toy

from workers.context import Context
from workers.parallel import STRATEGIES
from workers.protocol import Ending, StopRequest
from workers.workload import SharedEvaluation
from workers.workloads import WORKLOADS

SETTINGS = {
    "max_updates": 2,
    "evaluate_updates": 1,
    "checkpoint_updates": 1,
    "optimizer": "sgd",
    "learning_rate": 0.3,
    "rows": 7,
}


class Shared(SharedEvaluation, Toy):
    """Notes the rows that this rank evaluates, and how often it builds a model."""

    def run(self, context: Context):
        self.rank, self.folder, self.built = context.rank, context.folder, 0
        return super().run(context)

    def build_model(self):
        self.built += 1
        return super().build_model()

    def evaluate_share(self, model, device, index, count):
        total, weight, rows = 0.0, 0.0, 0
        for _, batch in zip(range(3), self.train_batches(999), strict=False):
            part = {key: value[index::count].to(device) for key, value in batch.items()}
            total += float(self.criterion(model(*self.inputs(part)), part))
            weight += self.weight(part)
            rows += len(part["tokens"])
        noted = {"rows": rows, "built": self.built, "whole": not any_part(model)}
        (self.folder / f"evaluated-{self.rank}.json").write_text(json.dumps(noted))
        return {"total": total, "weight": weight}

    def combine(self, shares):
        total = sum(share["total"] for share in shares)
        return {"loss": total / sum(share["weight"] for share in shares)}


def any_part(model):
    return any(hasattr(parameter, "placements") for parameter in model.parameters())


class Alone(Shared):
    """Rank 0 evaluates alone, in a way of its own."""

    def evaluate(self, model, device):
        return Toy.evaluate(self, model, device)

    def run(self, context: Context):
        metrics = super().run(context)
        (self.folder / f"evaluated-{self.rank}.json").write_text(json.dumps({"built": self.built}))
        return metrics


KINDS = {"shared": Shared, "alone": Alone}


def train(context: Context):
    kind = KINDS[context.params["kind"]]
    return kind(context.params, {}, {}, seed=context.seed).run(context)


def noted(folder: Path, ranks=2):
    files = [folder / f"evaluated-{rank}.json" for rank in range(ranks)]
    return [json.loads(file.read_text()) if file.exists() else None for file in files]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The validation loss by strategy and kind of evaluation, what ranks noted, and `single`'s."""
    folder = tmp_path_factory.mktemp("evaluations")
    names = [n for n in STRATEGIES.names() if STRATEGIES.get(n).needs.min_ranks <= 2]
    trials = [{"parallelism": name, "kind": "shared"} for name in names]
    trials.append({"parallelism": "fsdp", "kind": "alone"})
    found = run_all(folder, [{**SETTINGS, **trial} for trial in trials], 2, train)
    for trial, result in zip(trials, found, strict=True):
        assert result["failure"] is None, (trial, result["traceback"])
    keys = [(trial["parallelism"], trial["kind"]) for trial in trials]
    losses = {key: result["loss"] for key, result in zip(keys, found, strict=True)}
    notes = {key: noted(folder / str(index)) for index, key in enumerate(keys)}
    return losses, notes


def test_all_strategies_find_the_metrics_of_one_rank(results):
    losses, _ = results
    for key, found in losses.items():
        assert found == pytest.approx(losses["single", "shared"], rel=1e-5), key


def test_ranks_share_the_examples_out(results):
    _, notes = results
    for name in ("ddp", "fsdp", "tensor", "pipeline"):
        assert [note["rows"] for note in notes[name, "shared"]] == [12, 9], name
        assert all(note["whole"] for note in notes[name, "shared"])


def test_only_rank_0_builds_a_whole_model_if_it_evaluates_alone(results):
    _, notes = results
    first, second = (note["built"] for note in notes["fsdp", "alone"])
    assert first > second == 1


class Endless(Shared):
    """Evaluates until it is stopped."""

    def evaluate_share(self, model, device, index, count):
        (self.folder / f"begun-{self.rank}").touch()
        while True:
            super().evaluate_share(model, device, index, count)


def endless(context: Context):
    return Endless(context.params, {}, {}, seed=context.seed).run(context)


def test_a_request_to_stop_ends_an_evaluation_of_all_ranks(runner):
    runner.objective = endless

    def asked():
        begun = all((runner.folder / f"begun-{rank}").exists() for rank in (0, 1))
        return StopRequest.STOP if begun else None

    outcome = runner(**SETTINGS, parallelism="fsdp", ranks=2, stop_requested=asked)
    assert outcome.ending is Ending.STOPPED, outcome.message


@pytest.mark.parametrize("name", ["translation", "sentiment"])
def test_shares_add_up_to_the_whole(name, tmp_path):
    kind = WORKLOADS.get(name)
    smallest = kind.smallest
    workload = kind({}, smallest.get("data", {}), {**smallest.get("fixed", {}), "test": True})
    model = workload.build_model().eval()
    device = torch.device("cpu")
    with torch.no_grad():
        whole = workload.evaluate(model, device)
        shares = [workload.evaluate_share(model, device, index, 3) for index in range(3)]
    assert workload.combine(shares) == pytest.approx(whole, rel=1e-4)
