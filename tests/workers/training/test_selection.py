"""The mean of the best weights."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from toy import Toy

from workers.protocol import Ending
from workers.training import checkpoint

SCORES = (5.0, 3.0, 4.0, 4.5, 2.0, 6.0, 6.0, 6.0, 6.0)


class Scripted(Toy):
    """Its evaluations give what is written above, one after the other."""

    calls = 0

    def evaluate(self, model, device):
        self.calls += 1
        return {"perplexity": SCORES[min(self.calls, len(SCORES)) - 1]}


def scripted(context):
    return Scripted(context.params, {}, {}, seed=0).run(context)


def test_the_best_weights_are_averaged(runner):
    runner.objective = scripted
    runner(max_updates=6, evaluate_updates=1, optimized_metric="perplexity", average_best=2)
    kept = sorted((runner.folder / "best").iterdir())
    assert [path.stem for path in kept] == ["00000002", "00000005"]
    first, second = (load_file(path) for path in kept)
    found = checkpoint.load(runner.folder)
    for name, tensor in found.model.items():
        torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)
    assert any(not torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("updates", "best", "reports"), [(8, 5, 9), (5, 5, 5)])
def test_the_best_weights_alone_are_measured_again_unless_they_are_the_last(
    runner, updates, best, reports
):
    runner.objective = scripted
    outcome = runner(
        max_updates=updates, evaluate_updates=1, optimized_metric="perplexity", average_best=1
    )
    (kept,) = (runner.folder / "best").iterdir()
    assert int(kept.stem) == best
    found = checkpoint.load(runner.folder)
    assert all(torch.equal(tensor, load_file(kept)[name]) for name, tensor in found.model.items())
    assert len(runner.reports) == reports
    assert "train_loss" in outcome.metrics


@pytest.mark.parametrize(
    "wrong", [{"average_best": 2}, {"optimized_metric": "bleu", "average_best": 2}]
)
def test_a_metric_that_is_not_there_is_refused(runner, wrong):
    runner.objective = scripted
    outcome = runner(max_updates=2, evaluate_updates=1, **wrong)
    assert outcome.ending is Ending.FAILED
    assert "optimized_metric" in outcome.message
