"""Validation: loss of the references, and scores of the translations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from workers.device.precision import wide
from workers.files import Folder

from .batches import Examples, Ids, Prepared
from .beam_search import SearchOptions, translate
from .model import Transformer
from .vocabulary import PAD

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
    """Metrics and the sentences behind them.

    Args:
        metrics: `bleu` and `chrf` (0 to 100), `loss` (nats per token), `perplexity` (its
            exponential), and BLEU of each language pair if there are several.
        details: facts for the outcome of the trial.
    """

    metrics: Mapping[str, float]
    details: Mapping[str, Any]
    hypotheses: list[str]
    references: list[str]

    def write(self, folder: Path) -> None:
        """Write `hypotheses.valid.txt` and `references.valid.txt`, for use with `sacrebleu`."""
        texts = {"references": self.references, "hypotheses": self.hypotheses}
        for name, lines in texts.items():
            content = "".join(line + "\n" for line in lines).encode()
            Folder(folder).file(f"{name}.valid.txt").write_bytes(content)


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
    loss = sum(share["loss"] for share in shares) / max(1, sum(s["tokens"] for s in shares))
    scores = score(hypotheses, references, tokenizer)
    metrics = {
        "bleu": scores.bleu,
        "chrf": scores.chrf,
        "loss": loss,
        "perplexity": math.exp(min(loss, 700.0)),
    }
    pairs = prepared.splits.valid_pairs[:total]
    for pair in dict.fromkeys(pairs):
        rows = [row for row, other in enumerate(pairs) if other == pair]
        said, right = ([lines[row] for row in rows] for lines in (hypotheses, references))
        metrics[pair.metric] = score(said, right, tokenizer).bleu
    details = {
        "bleu_signature": scores.bleu_signature,
        "chrf_signature": scores.chrf_signature,
        "evaluated_sentences": total,
        "skipped_pairs": prepared.train.skipped,
    }
    return Evaluation(metrics, details, hypotheses, references)


def summed_loss(model: Transformer, examples: Examples, rows: Ids) -> tuple[float, int]:
    """Summed cross-entropy of the target tokens of these rows, in nats, and their number."""
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
        logs = wide(model(batch["source"], batch["shifted"])).log_softmax(-1)
        total -= logs.gather(1, labels[:, None]).sum()
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
