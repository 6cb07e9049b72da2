"""Finds the metrics that a program prints, to propose its goal: validation before test."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

COLOURS: Final = r"\x1b\[[0-9;]*m"  # of a terminal
_TYPE: Final = r"(?:np\.float\d+|tensor)\("  # before a number of NumPy or torch
# Before a metric's name in a pattern: it is not the end of another metric's name.
BEFORE: Final = r"(?:^|[\d]|[^\w\s'\"])[\s'\"]*"
# After it, with the group: also 1,000.5, 1e3, nan, and NaN and -Infinity as in JSON. It takes
# all of a number with a decimal comma, so that this is complained about and not half of it read.
VALUE: Final = (
    rf"[\s:='\"]+(?:{_TYPE})?"
    r"([-+]?(?i:\d+(?:[,_]\d+)+(?:\.\d*)?|[\d.]+(?:e[-+]?\d+)?|nan|inf(?:inity)?))"
)
_MINIMIZE: Final = re.compile(
    "loss|rmse|mse|mae|rmsle|error|err|ppl|perplexity|nll|bpc|bpb|wer|cer|fid|logloss|merror|l1|l2"
)
_MAXIMIZE: Final = re.compile(
    "acc|accuracy|auc|f1|bleu|chrf|rouge|r2|score|precision|recall|map|ndcg|iou|dice|reward|psnr|"
    "ssim|mcc|kappa"
)
_ALSO_OPTIONS: Final = ("l1", "l2")  # metrics only if they are said to be of some data
STEPS: Final = ("epoch", "step", "iteration", "iter", "update", "round")
# Which part of the data a metric is of; the best to tune by first.
_PARTS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval", "evaluation"), 0),
    "": 1,
    "test": 2,
    **dict.fromkeys(("train", "training"), 3),
}
_NUMBER: Final = re.compile(
    r"(?<![\w.+@/-])(?:[-+]?(?:\d{1,3}(?:[,_]\d{3})+|\d+)\.?\d*(?:e[-+]?\d+)?"
    r"|[-+]?\.\d+(?:e[-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?))(?![\w.])",
    re.IGNORECASE,
)
_BORDER: Final = re.compile(r"[|,;\t\[\](){}]|\s-\s")  # between two pairs of a name and a number
_BEFORE: Final = re.compile(r"^[^A-Za-z_]+")
_WORD: Final = re.compile(r"[A-Za-z]+\d*")
_BRACKETS: Final = re.compile(r"\[\d+\]\s")


class PrintedMetric(NamedTuple):
    """A metric that a program prints.

    Args:
        name: such as "val_loss".
        maximize: whether larger is better.
        pattern: a regular expression of RE2 for it.
        step: one for the step; "" if no step is printed.
        part: of the data, in the program's word; "" if it is not known.
        line: where it was found.
    """

    name: str
    maximize: bool
    pattern: str
    step: str
    part: str
    line: str

    @property
    def goal(self) -> str:
        """The goal that it makes."""
        return f"{'maximize' if self.maximize else 'minimize'} {self.name}"

    @property
    def of_validation(self) -> bool:
        """Whether it is measured on data for validation."""
        return _PARTS[self.part] == 0


def printed_metrics(lines: Iterable[str]) -> list[PrintedMetric]:
    """The metrics in what a program has printed, the best to tune by first."""
    found: dict[str, PrintedMetric] = {}
    steps: set[str] = set()  # words for a step, anywhere
    for shown in lines:
        line, end = re.sub(COLOURS, "", shown), 0
        in_line = {step for step in STEPS if re.search(rf"(?i)(?:\b|_){step}(?:\b|_)", line)}
        steps |= in_line
        step = r"^\[(\d+)\]" if _BRACKETS.match(line) else _step_pattern(in_line)
        for number in _NUMBER.finditer(line):
            metric = _metric(line[end : number.start()], line[:end])
            end = number.end()
            if metric is not None:
                found.setdefault(metric.name, metric._replace(step=step, line=line.strip()))
    anywhere = _step_pattern(steps)
    complete = [one if one.step else one._replace(step=anywhere) for one in found.values()]
    return sorted(complete, key=lambda one: (_PARTS[one.part], "loss" not in one.name))


def larger_is_better(name: str) -> bool | None:
    """Whether a large value of a metric is good; None if its name does not say."""
    last = _words(name)[-1:]
    if any(map(_MINIMIZE.fullmatch, last)):
        return False
    return any(map(_MAXIMIZE.fullmatch, last)) or None


def _metric(between: str, before: str) -> PrintedMetric | None:
    """The metric of a number that follows a text, in a line that begins with `before`."""
    text = _BORDER.split(re.sub(_TYPE + "$", "", between))[-1]
    label = _BEFORE.sub("", text.strip(" :='\""))  # of "Epoch 1/8: loss 0.5", "loss"
    words, maximize = _words(label), larger_is_better(label)
    own = next((word for word in words if word in _PARTS), "")
    if maximize is None or (words[-1] in _ALSO_OPTIONS and not own):
        return None
    alone = [word for word in re.findall(r"\b[a-z]+\b", before.lower()) if word in _PARTS]
    part = own or "".join(alone[:1])  # "INFO | valid | epoch 1 | loss 0.5"
    pattern = r"\s+".join(map(re.escape, label.split()))
    if part and not own:
        pattern = rf"(?i:\b{part}\b).*{pattern}"
    elif not own:
        pattern = f"{BEFORE}{pattern}"
    name = f"{part}_{words[-1]}" if part else words[-1]
    return PrintedMetric(name, maximize, f"{pattern}{VALUE}", "", part, "")


def _words(label: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(label.replace("_", " "))]


def _step_pattern(words: Collection[str]) -> str:
    return next((rf"(?i)\b{step}\W+(\d+)" for step in STEPS if step in words), "")
