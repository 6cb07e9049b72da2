"""Validation: loss of the references, and scores of the translations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .batches import Examples
from .beam_search import SearchOptions, translate
from .loss import smoothed_cross_entropy
from .model import Transformer
from .prepare import Prepared
from .vocabulary import PAD

if TYPE_CHECKING:
    from torch import nn

_BATCH = 64


@dataclass(frozen=True)
class Scores:
    """Corpus scores, 0 to 100, with signatures that state how they were computed."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


@dataclass(frozen=True)
class Evaluation:
    """Metrics and the sentences behind them."""

    loss: float
    scores: Scores
    hypotheses: list[str]
    references: list[str]
    skipped: int

    @property
    def metrics(self) -> Mapping[str, float]:
        """`bleu` and `chrf` (0 to 100), `loss` (nats per token), `perplexity` (its exponential)."""
        return {
            "bleu": self.scores.bleu,
            "chrf": self.scores.chrf,
            "loss": self.loss,
            "perplexity": math.exp(min(self.loss, 700.0)),
        }

    def details(self) -> dict[str, Any]:
        """Facts for the outcome of the trial."""
        return {
            "bleu_signature": self.scores.bleu_signature,
            "chrf_signature": self.scores.chrf_signature,
            "evaluated_sentences": len(self.references),
            "skipped_pairs": self.skipped,
        }

    def write(self, folder: Path) -> None:
        """Write `hypotheses.valid.txt` and `references.valid.txt`, for use with `sacrebleu`."""
        write_lines(folder / "references.valid.txt", self.references)
        write_lines(folder / "hypotheses.valid.txt", self.hypotheses)


def evaluate(
    model: nn.Module, prepared: Prepared, search: SearchOptions, num_sentences: int
) -> Evaluation:
    """Evaluate on the first `num_sentences` of the validation split; the model is in eval mode."""
    assert isinstance(model, Transformer)
    count = min(num_sentences, len(prepared.valid))
    encoded = prepared.valid.sources
    sources = [ids.tolist() for ids in np.split(encoded.ids, encoded.offsets[1:])[:count]]
    hypotheses = prepared.vocabulary.decode(translate(model, sources, search))
    references = list(prepared.splits.valid.targets[:count])
    return Evaluation(
        token_loss(model, prepared.valid, count),
        score(hypotheses, references),
        hypotheses,
        references,
        prepared.train.skipped,
    )


def token_loss(model: Transformer, examples: Examples, count: int) -> float:
    """Mean cross-entropy per target token, in nats, of the first `count` examples."""
    device = model.embedding.tokens.weight.device
    order = np.argsort(examples.targets.lengths[:count], kind="stable")
    total = 0.0
    tokens = 0
    for begin in range(0, count, _BATCH):
        cpu_batch = examples.batch(order[begin : begin + _BATCH])
        batch = {key: value.to(device) for key, value in cpu_batch.items()}
        labels = batch["labels"][batch["labels"] != PAD]
        total += float(
            smoothed_cross_entropy(model(batch["source"], batch["shifted"]), labels, 0.0)
        )
        tokens += len(labels)
    return total / max(1, tokens)


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """BLEU (Papineni et al. 2002) and chrF2 (Popovic 2015) with defaults of sacrebleu."""
    from sacrebleu.metrics import BLEU, CHRF

    metrics = (BLEU(), CHRF())
    bleu, chrf = (m.corpus_score(list(hypotheses), [list(references)]).score for m in metrics)
    signatures = (str(metric.get_signature()) for metric in metrics)
    return Scores(float(bleu), float(chrf), *signatures)


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write one line each; a reader sees the old file or the whole new one."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    temporary.replace(path)
