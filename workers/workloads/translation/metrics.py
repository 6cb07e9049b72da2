"""BLEU and chrF by sacrebleu, and text files with which its command gives the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Scores:
    """Corpus scores, 0 to 100, with signatures that state how they were computed."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


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
