"""Finds the metrics that a program prints, to propose its goal: validation before test."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .output import COLOURS

# The group of a pattern: also 1,000.5, 1e3, nan, and NaN and -Infinity as in JSON. It takes
# all of a number with a decimal comma, so that this is complained about and not half of it read.
VALUE: Final = r"([-+]?(?i:\d+(?:[,_]\d+)+(?:\.\d*)?|[\d.]+(?:e[-+]?\d+)?|nan|inf(?:inity)?))"
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
TYPE: Final = r"(?:np\.float\d+|tensor)\("  # before a number of NumPy or torch
# Of "val_loss improved from 0.83 to 0.75" the first number is no value of this epoch.
_EARLIER: Final = {"from", "was", "before", "prev", "previous", "old", "improved", "delta"}
_BORDER: Final = re.compile(r"[|,;\t\[\](){}]|\s-\s")  # between two pairs of a name and a number
_BEFORE: Final = re.compile(r"^[^A-Za-z_]+")
_WORD: Final = re.compile(r"[A-Za-z]+\d*")
_BRACKETS: Final = re.compile(r"\[\d+\]\s")


@dataclass(frozen=True)
class PrintedMetric:
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
    steps: dict[str, None] = {}  # words for a step, anywhere
    for shown in lines:
        line = re.sub(COLOURS, "", shown)
        labels = list(_labels(line))
        own = _steps_in(labels)
        steps |= dict.fromkeys(own)
        part = _part_between_bars(line)  # or what an earlier label says of the whole line
        for label in labels:
            metric = _metric(label, part, line)
            part = part or _part_of_line(label)
            if metric is not None:
                step = r"^\[(\d+)\]" if _BRACKETS.match(line) else _step_pattern(own)
                found.setdefault(metric.name, _with_step(metric, step))
    anywhere = _step_pattern(sorted(steps, key=STEPS.index))
    complete = [one if one.step else _with_step(one, anywhere) for one in found.values()]
    return sorted(complete, key=lambda one: (_PARTS[one.part], "loss" not in one.name))


def reported_metrics(names: Sequence[str]) -> list[PrintedMetric]:
    """The metrics that a program has reported by their names, the best to tune by first."""
    found = [_metric(name, "", "") for name in names]
    known = [
        PrintedMetric(name, one.maximize, "", "", one.part, "AUTOML_REPORTS")
        for name, one in zip(names, found, strict=True)
        if one is not None
    ]
    return sorted(known, key=lambda one: (_PARTS[one.part], "loss" not in one.name))


def _labels(line: str) -> Iterator[str]:
    """What stands before each number of a line, up to the number or the border before."""
    end = 0
    for number in _NUMBER.finditer(line):
        text = re.sub(TYPE + "$", "", line[end : number.start()])
        text = _BORDER.split(text)[-1]
        end = number.end()
        if label := _BEFORE.sub("", text.strip(" :='\"")):  # of "Epoch 1/8: loss 0.5", "loss"
            yield label


def _is_kind(word: str) -> bool:
    return bool(_MINIMIZE.fullmatch(word) or _MAXIMIZE.fullmatch(word))


def _words(label: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(label.replace("_", " "))]


def _part_of(label: str) -> str:
    return next((word for word in _words(label) if word and word in _PARTS), "")


def _part_of_line(label: str) -> str:
    """The part of the data that all of a line is of: "Test set: Average loss", "Train Epoch"."""
    others = [word for word in _words(label) if word not in _PARTS and not _is_kind(word)]
    return _part_of(label) if others else ""


def _part_between_bars(line: str) -> str:
    """The part of the data that stands alone between bars: "INFO | valid | epoch 1 | loss 0.5"."""
    words = [word.strip(" []:").lower() for word in line.split("|")]
    return next((word for word in words[:-1] if word and word in _PARTS), "")


def _steps_in(labels: Iterable[str]) -> list[str]:
    return [step for step in STEPS if any(step in _words(label) for label in labels)]


def _metric(label: str, part_of_line: str, line: str) -> PrintedMetric | None:
    words = _words(label)
    kind = next((word for word in reversed(words) if _is_kind(word)), "")
    own = _part_of(label)
    part = own or part_of_line
    if not kind or (kind in _ALSO_OPTIONS and not own) or not _EARLIER.isdisjoint(words):
        return None
    text = r"\s+".join(map(re.escape, label.split()))
    if part and not own:
        text = rf"(?i:\b{part}\b).*{text}"
    elif not own:  # not the end of another metric's name
        text = rf"(?:^|[\d]|[^\w\s'\"])[\s'\"]*{text}"
    kind_of_number = TYPE if re.search(TYPE, line) else ""
    pattern = rf"{text}[\s:='\"]+{kind_of_number}{VALUE}"
    name = f"{part}_{kind}" if part else kind
    return PrintedMetric(
        name, _MAXIMIZE.fullmatch(kind) is not None, pattern, "", part, line.strip()
    )


def _step_pattern(steps: list[str]) -> str:
    return rf"(?i)\b{steps[0]}\W+(\d+)" if steps else ""


def _with_step(metric: PrintedMetric, step: str) -> PrintedMetric:
    return PrintedMetric(**{**vars(metric), "step": step})
