"""The goal of a program is read from what programs really print."""

from __future__ import annotations

import math

import pytest

from workers.command.printed_metrics import printed_metrics
from workers.command.reports import Collector, PatternReports

LANGUAGE_MODEL = """\
| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 8.21 | loss  6.53 | ppl   685.33
| end of epoch   1 | time: 32.11s | valid loss  5.38 | valid ppl   217.43
| epoch   2 |   200/ 2983 batches | lr 20.00 | ms/batch 8.21 | loss  5.53 | ppl   285.33
| end of epoch   2 | time: 32.11s | valid loss  4.88 | valid ppl   157.43
| End of training | test loss  4.81 | test ppl   155.90
"""
MNIST = """\
Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300039
Test set: Average loss: 0.0460, Accuracy: 9852/10000 (99%)
Train Epoch: 2 [0/60000 (0%)]\tLoss: 0.300039
Test set: Average loss: 0.0360, Accuracy: 9872/10000 (99%)
"""


@pytest.mark.parametrize(
    ("output", "goal", "reports"),
    [
        (LANGUAGE_MODEL, "minimize valid_loss", [(1, 5.38), (2, 4.88)]),
        (MNIST, "minimize test_loss", [(1, 0.046), (2, 0.036)]),
        (
            "step 250: train loss 1.9, val loss 2.5\niter 260: loss 1.8, time 30.1ms\n"
            "step 500: train loss 1.7, val loss 2.25",
            "minimize val_loss",
            [(250, 2.5), (500, 2.25)],
        ),
        (
            "{'loss': 0.7, 'epoch': 1}\n{'eval_loss': 0.5, 'eval_accuracy': 0.75, 'epoch': 1}",
            "minimize eval_loss",
            [(1, 0.5)],
        ),
        (
            "[0]\ttrain-rmse:0.5\tvalid-rmse:0.75\n[1]\ttrain-rmse:0.25\tvalid-rmse:0.625",
            "minimize valid_rmse",
            [(0, 0.75), (1, 0.625)],
        ),
        ("[1]\tvalid_0's l2: 0.25", "minimize valid_l2", [(1, 0.25)]),
        (
            "Epoch 1/2\n32/32 - 1s - loss: 0.5 - accuracy: 0.5 - val_loss: 0.625\n"
            "Epoch 2/2\n32/32 - 1s - loss: 0.25 - accuracy: 0.5 - val_loss: 0.5",
            "minimize val_loss",
            [(1, 0.625), (2, 0.5)],
        ),
        ("Dev F1 = 0.5", "maximize dev_f1", [(None, 0.5)]),
        ("lr 0.1 l2 0.0\nrmse 0.62", "minimize rmse", [(None, 0.62)]),
        ("loss: -0.5\nval_loss: -0.25", "minimize val_loss", [(None, -0.25)]),
        ("took 3.5 s\nwrote model-7.pt", None, []),
        ("Epoch 1/8: val_loss=0.47", "minimize val_loss", [(1, 0.47)]),
        ("epoch 1 val_loss 1.0005E+03", "minimize val_loss", [(1, 1000.5)]),
        ("epoch 1 Perplexity: 1,000.5", "minimize perplexity", [(1, 1000.5)]),
        ("epoch 1 rmse 0,693\nepoch 2 rmse 12,5\nepoch 3 rmse 7", "minimize rmse", [(3, 7.0)]),
        ("epoch 1 rmse 1_234_567", "minimize rmse", [(1, 1234567.0)]),
        (
            '{"epoch": 1, "val_loss": 0.5}\n{"epoch": 2, "val_loss": -Infinity}',
            "minimize val_loss",
            [(1, 0.5), (2, -math.inf)],
        ),
        ("{'epoch': 1, 'val_loss': np.float64(0.75)}", "minimize val_loss", [(1, 0.75)]),
        ("epoch 1: val_loss tensor(0.7500)", "minimize val_loss", [(1, 0.75)]),
        ("\x1b[1mepoch 1 val_loss\x1b[0m: \x1b[31m0.25\x1b[0m", "minimize val_loss", [(1, 0.25)]),
        (
            "Epoch 1: val_loss improved from 0.75 to 0.5, saving\n3/3 - loss: 0.25 - val_loss: 0.5",
            "minimize val_loss",
            [(1, 0.5)],
        ),
    ],
)
def test_what_programs_print(
    output: str, goal: str | None, reports: list[tuple[int | None, float]]
) -> None:
    found = printed_metrics(output.splitlines())
    assert (found[0].goal if found else None) == goal
    if not reports:
        return
    metric = found[0]
    patterns = {metric.name: metric.pattern, **({"step": metric.step} if metric.step else {})}
    sent: list[tuple[int | None, float]] = []
    collector = Collector(lambda step, m: sent.append((step, m[metric.name])), lambda words: None)
    reader = PatternReports(patterns, metric.name, collector)
    reader.feed(output.encode())
    reader.close()
    if reports[0][0] is None:
        assert [value for _, value in sent] == [value for _, value in reports]
    else:
        assert sent == reports


@pytest.mark.parametrize("line", ["Epoch 1/8: val_loss=0.4", "Epoch 1/8 loss 0.4, acc 90.1% f1 1"])
def test_no_pattern_holds_a_number_of_the_run(line: str) -> None:
    assert not any("8" in one.pattern for one in printed_metrics([line]))


def test_all_that_is_printed_is_a_candidate() -> None:
    names = [metric.name for metric in printed_metrics(LANGUAGE_MODEL.splitlines())]
    assert names == ["valid_loss", "valid_ppl", "loss", "ppl", "test_loss", "test_ppl"]
    names = [metric.name for metric in printed_metrics(MNIST.splitlines())]
    assert names == ["test_loss", "test_accuracy", "train_loss"]
