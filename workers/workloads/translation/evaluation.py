"""Validation: loss of the references, and scores of the translations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workers.files.folder import Folder

from .batches import Examples, Ids
from .beam_search import SearchOptions, translate
from .language_tags import LanguagePair
from .loss import smoothed_cross_entropy
from .model import Transformer
from .prepare import Prepared
from .vocabulary import PAD

if TYPE_CHECKING:
    from torch import nn

_BATCH = 64
_HAN, _KANA = ("\u3400", "\u9fff"), ("\u3040", "\u30ff")
_WITHOUT_BLANKS = (("\u0e00", "\u0eff"), ("\u1000", "\u109f"), ("\u1780", "\u17ff"))


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
    by_pair: Mapping[str, float]  # BLEU of each language pair by the name of its metric

    @property
    def metrics(self) -> Mapping[str, float]:
        """`bleu` and `chrf` (0 to 100), `loss` (nats per token), `perplexity` (its exponential)."""
        return {
            "bleu": self.scores.bleu,
            "chrf": self.scores.chrf,
            "loss": self.loss,
            "perplexity": math.exp(min(self.loss, 700.0)),
            **self.by_pair,
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
        texts = {"references": self.references, "hypotheses": self.hypotheses}
        for name, lines in texts.items():
            content = "".join(line + "\n" for line in lines).encode()
            Folder(folder).replace(f"{name}.valid.txt", content)


def evaluate_share(
    model: nn.Module,
    prepared: Prepared,
    search: SearchOptions,
    num_sentences: int,
    index: int,
    count: int,
) -> dict[str, Any]:
    """Summed loss, tokens and translations of every `count`-th sentence from `index` on.

    Args:
        model: in eval mode.
        prepared: its first `num_sentences` of the validation split are shared out.
        search: options of the search for translations.
    """
    assert isinstance(model, Transformer)
    encoded = prepared.valid.sources
    rows = np.arange(min(num_sentences, len(prepared.valid)))[index::count]
    sentences = np.split(encoded.ids, encoded.offsets[1:])
    sources = [sentences[row].tolist() for row in rows]
    hypotheses = prepared.vocabulary.decode(translate(model, sources, search)) if sources else []
    loss, tokens = summed_loss(model, prepared.valid, rows)
    return {"hypotheses": hypotheses, "loss": loss, "tokens": tokens}


def combine(
    shares: Sequence[Mapping[str, Any]], prepared: Prepared, tokenizer: str = "auto"
) -> Evaluation:
    """The evaluation of all sentences from the shares in order."""
    total = sum(len(share["hypotheses"]) for share in shares)
    hypotheses = [""] * total
    for index, share in enumerate(shares):
        hypotheses[index :: len(shares)] = share["hypotheses"]
    references = list(prepared.splits.valid.targets[:total])
    loss = sum(share["loss"] for share in shares)
    tokens = sum(share["tokens"] for share in shares)
    return Evaluation(
        loss / max(1, tokens),
        score(hypotheses, references, tokenizer),
        hypotheses,
        references,
        prepared.train.skipped,
        _bleu_by_pair(hypotheses, references, prepared.splits.valid_pairs[:total], tokenizer),
    )


def _bleu_by_pair(
    hypotheses: Sequence[str],
    references: Sequence[str],
    pairs: Sequence[LanguagePair],
    tokenizer: str,
) -> dict[str, float]:
    """BLEU of the sentences of each language pair, by the name of its metric."""
    found = {}
    for pair in dict.fromkeys(pairs):
        rows = [row for row, other in enumerate(pairs) if other == pair]
        said, right = ([texts[row] for row in rows] for texts in (hypotheses, references))
        found[pair.metric] = score(said, right, tokenizer).bleu
    return found


def summed_loss(model: Transformer, examples: Examples, rows: Ids) -> tuple[float, int]:
    """Summed cross-entropy of the target tokens of these rows, in nats, and their number."""
    import torch

    device = model.embedding.tokens.weight.device
    rows = rows[np.argsort(examples.targets.lengths[rows], kind="stable")]
    # The sum stays on the device: to read it would wait for every batch.
    total = torch.zeros((), dtype=torch.float64, device=device)
    tokens = 0
    for begin in range(0, len(rows), _BATCH):
        cpu_batch = examples.batch(rows[begin : begin + _BATCH])
        tokens += int((cpu_batch["labels"] != PAD).sum())
        batch = {key: value.to(device) for key, value in cpu_batch.items()}
        labels = batch["labels"][batch["labels"] != PAD]
        total += smoothed_cross_entropy(model(batch["source"], batch["shifted"]), labels, 0.0)
    return float(total), tokens


def score(hypotheses: Sequence[str], references: Sequence[str], tokenizer: str = "auto") -> Scores:
    """BLEU (Papineni et al. 2002) and chrF2 (Popovic 2015), as sacrebleu computes them.

    Args:
        hypotheses: texts as they are, which are not normalised, like the references.
        references: one for each of them.
        tokenizer: of BLEU, 13a, zh, ja-mecab or char; "auto" chooses by their script.
    """
    from sacrebleu.metrics import BLEU, CHRF

    chosen = tokenizer_of(references) if tokenizer == "auto" else tokenizer
    metrics = (BLEU(tokenize=chosen), CHRF())
    bleu, chrf = (m.corpus_score(list(hypotheses), [list(references)]).score for m in metrics)
    signatures = (str(metric.get_signature()) for metric in metrics)
    return Scores(float(bleu), float(chrf), *signatures)


def tokenizer_of(references: Sequence[str]) -> str:
    """The tokeniser of sacrebleu for texts: 13a, unless their script has no blanks.

    Japanese by its words needs the package mecab-python3; else it is compared by characters.
    """
    text = "".join(references[:1000])
    letters = max(1, sum(map(str.isalpha, text)))

    def most(*ranges: tuple[str, str]) -> bool:
        return sum(any(a <= c <= b for a, b in ranges) for c in text) > 0.3 * letters

    if most(_HAN, _KANA):
        japanese = sum(_KANA[0] <= c <= _KANA[1] for c in text) > 0.05 * letters
        words = "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
        return words if japanese else "zh"
    return "char" if most(*_WITHOUT_BLANKS) else "13a"
