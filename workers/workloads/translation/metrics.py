"""BLEU and chrF by sacrebleu, and the files from which its command gives the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Scores:
    """ParallelCorpus scores, 0 to 100, with the signatures that say how they were computed."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """BLEU (Papineni et al. 2002) and chrF2 (Popovic 2015) with sacrebleu's defaults (Post 2018)."""
    from sacrebleu.metrics import BLEU, CHRF

    bleu, chrf = BLEU(), CHRF()
    values = [
        metric.corpus_score(list(hypotheses), [list(references)]).score for metric in (bleu, chrf)
    ]
    return Scores(
        float(values[0]), float(values[1]), str(bleu.get_signature()), str(chrf.get_signature())
    )


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """One line each; whoever reads the path sees the whole file or the one before."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    temporary.replace(path)
