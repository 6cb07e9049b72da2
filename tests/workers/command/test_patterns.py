"""Regular expressions over the output of a command."""

from __future__ import annotations

import math
from typing import Any

import pytest

from search_spaces.errors import UsageError
from workers.command.reports import Collector, PatternReports, compile_pattern, usual_patterns

LOSS = r"loss (\S+)"
STEP = r"epoch (\d+)"


class Heard:
    """What a collector sent and said."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, dict[str, float]]] = []
        self.said: list[str] = []
        self.collector = Collector(
            lambda step, metrics: self.reports.append((step, dict(metrics))), self.said.append
        )

    def feed(self, *chunks: str | bytes, goal: str = "loss", **patterns: str) -> Heard:
        reports = PatternReports(patterns, goal, self.collector)
        for chunk in chunks:
            reports.feed(chunk.encode() if isinstance(chunk, str) else chunk)
        reports.close()
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
    assert heard.reports == [(1, {"acc": 1, "loss": 3}), (2, {"loss": 2})]
    assert heard.collector.result == {"acc": 5}


def test_what_is_no_number_is_described_and_left_out() -> None:
    heard = Heard().feed("loss oops\nloss 1\nloss nan\nloss inf\n", loss=LOSS)
    assert heard.reports[0] == (1, {"loss": 1})
    assert math.isnan(heard.reports[1][1]["loss"])
    assert heard.reports[2] == (3, {"loss": math.inf})
    assert heard.said == ["the pattern of loss finds a number, got 'oops'; it is left out"]


def test_a_line_is_cut() -> None:
    assert Heard().feed("x" * 10_001 + " loss 1\n", loss=LOSS).reports == []


def test_anchors_mean_the_ends_of_a_line() -> None:
    text = "a loss 1\nloss 2\nloss 3 \n"
    assert Heard().feed(text, loss=r"^loss (\S+)$").reports == [(1, {"loss": 2})]
    assert Heard().feed(text, loss=r"\Aloss (\S+)").reports == [(1, {"loss": 2}), (2, {"loss": 3})]


def test_no_expression_takes_long() -> None:
    """With backtracking this one would take longer than the universe is old."""
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
    heard.collector.report(step, {"loss": 1.0}, "here")
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
    heard = Heard()
    found = PatternReports(usual_patterns(["loss"]), "loss", heard.collector, may_count=True)
    found.feed(printed.encode())
    found.close()
    assert [(step, metrics["loss"]) for step, metrics in heard.reports] == reports
