"""What is read in the output of a command, and which goal it shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from search_spaces.errors import UsageError
from workers.command.goal_proposals import printed_metrics
from workers.command.reports import Reports, compile_pattern
from workers.files import Folder

LOSS = r"loss (\S+)"
STEP = r"epoch (\d+)"


class Heard:
    """What a reader of reports sent and said."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, dict[str, float]]] = []
        self.said: list[str] = []
        self.reader = self.of({})

    def of(self, patterns: dict[str, str], goal: str = "loss") -> Reports:
        def send(step: int, metrics: Mapping[str, float]) -> None:
            self.reports.append((step, dict(metrics)))

        return Reports(send, self.said.append, Folder("/nowhere"), patterns, goal, [goal])

    def feed(self, *chunks: str | bytes, goal: str = "loss", **patterns: str) -> Heard:
        self.reader = self.of(patterns, goal)
        for chunk in chunks:
            self.reader.feed(chunk.encode() if isinstance(chunk, str) else chunk, "stdout")
        self.reader.look(last=True)
        return self


@pytest.mark.parametrize(
    "chunks",
    [
        ["epoch 1 loss 0.5\nepoch 2 loss 0.25\n"],
        ["epoch 1\nloss 0.5\nepoch 2\n", "loss 0.25\n"],
        ["epoch 1 lo", "ss 0.", "5\nepoch 2 loss 0.25"],
        ["epoch 1 loss 0.5,\r\nepoch 2 (loss 0.25)\r\n"],
        ["noise\n" * 1000, "epoch 1 loss 0.5\n", "noise\n", "epoch 2 loss 2.5e-1\n", "noise"],
        [b"\xff\xfe\x00epoch 1 loss 0.5\n\x80epoch 2 loss 0.25\n"],
        ["x" * 9_000 + "epoch 1 loss 0.5\n", "epoch 2 loss 0.25" + " x" * 9_000],
    ],
)
def test_a_report_for_each_step(chunks: list[str]) -> None:
    heard = Heard().feed(*chunks, loss=LOSS, step=STEP)
    assert heard.reports == [(1, {"loss": 0.5}), (2, {"loss": 0.25})]
    assert heard.said == []


def test_a_report_waits_for_every_metric_of_its_step() -> None:
    reports = Heard()
    text = "epoch 1\nloss 3\nacc 0.1\nepoch 2\nloss 2\nepoch 3\nacc 0.3\n"
    reports.feed(text, loss=LOSS, acc=r"acc (\S+)", step=STEP)
    assert reports.reports == [(1, {"loss": 3, "acc": 0.1}), (2, {"loss": 2}), (3, {"acc": 0.3})]


def test_without_a_step_each_value_of_the_goal_is_one() -> None:
    heard = Heard().feed("acc 1\nloss 3\nloss 2\nacc 5", loss=LOSS, acc=r"acc (\S+)")
    sent = (heard.reports, heard.reader.result)
    assert sent == ([(1, {"acc": 1, "loss": 3}), (2, {"loss": 2})], {"acc": 5})


def test_what_is_no_number_is_described_and_left_out() -> None:
    heard = Heard().feed("loss oops\nloss 1\nloss nan\nloss inf\n", loss=LOSS)
    assert heard.reports[0] == (1, {"loss": 1})
    assert math.isnan(heard.reports[1][1]["loss"])
    assert heard.reports[2] == (3, {"loss": math.inf})
    assert heard.said == ["the pattern of loss finds a number, got 'oops'; it is left out"]


def test_anchors_mean_the_ends_of_a_line() -> None:
    text = "a loss 1\nloss 2\nloss 3 \n"
    assert Heard().feed(text, loss=r"^loss (\S+)$").reports == [(1, {"loss": 2})]
    assert Heard().feed(text, loss=r"\Aloss (\S+)").reports == [(1, {"loss": 2}), (2, {"loss": 3})]


def test_a_line_is_cut_and_no_expression_takes_long() -> None:
    """With backtracking this one would take longer than the universe is old."""
    assert Heard().feed("x" * 10_001 + " loss 1\n", loss=LOSS).reports == []
    heard = Heard().feed("a" * 10_000 + "!\n", loss=r"(?:a|aa)+(?:a|aa)+(?:a|aa)+(\d)")
    assert heard.reports == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(a", "is no regular expression of RE2"),
        (r"(?=a)(b)", "no references or look-around"),
        (r"(a)\1", "no references or look-around"),
        ("((a{500}){500})", "is no regular expression"),
        ("a", "has one group, which is the number"),
        ("(a)(b)", "got 2 groups"),
    ],
)
def test_a_wrong_expression_is_one_clear_error(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_pattern("loss", text)
    assert "the pattern of loss" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("step", [1.5, "1", True, None, 2**63])
def test_a_step_is_a_whole_number(step: Any) -> None:
    heard = Heard()
    heard.reader.report({"step": step, "loss": 1.0}, "here")
    assert heard.reports == []
    assert heard.said[0].startswith("here: a step is a whole number, got")


@pytest.mark.parametrize(
    ("printed", "reports"),
    [
        ("loss 1.5\nloss 0.5\n", [(1, 1.5), (2, 0.5)]),
        ("Loss: 1.5\n", [(1, 1.5)]),
        ("epoch 3 train loss 9 | loss=1.5\n", [(3, 1.5)]),
        ('{"loss": 1.5, "step": 4}\n', [(4, 1.5)]),
        ("my_loss 1.5\nlosses 2\ntrain loss 9\n", []),
    ],
)
def test_usual_lines_are_read(printed: str, reports: list[tuple[int, float]]) -> None:
    heard = Heard().feed(printed)
    assert [(step, metrics["loss"]) for step, metrics in heard.reports] == reports


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
    heard = Heard().feed(output, goal=metric.name, **patterns)
    sent = [(step, found[metric.name]) for step, found in heard.reports]
    assert [value for _, value in sent] == [value for _, value in reports]
    assert reports[0][0] is None or sent == reports


def test_all_that_is_printed_is_a_candidate() -> None:
    lines = ["Epoch 1/8: val_loss=0.4", "Epoch 1/8 loss 0.4, acc 90.1% f1 1"]
    assert not any("8" in one.pattern for one in printed_metrics(lines)), "of this run"
    for output, names in (
        (LANGUAGE_MODEL, ["valid_loss", "valid_ppl", "loss", "ppl", "test_loss", "test_ppl"]),
        (MNIST, ["test_loss", "test_accuracy", "train_loss"]),
    ):
        assert [metric.name for metric in printed_metrics(output.splitlines())] == names
