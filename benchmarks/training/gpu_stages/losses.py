"""Losses are equal in every precision, and the GPU translates as the CPU does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.common.bounds import Claim, at_least, at_most
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target
from benchmarks.training.gpu_stages._trials import Untested, base, train_once
from workers.workloads.translation import Translation

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
EQUAL = {"tf32": 2e-2, "bf16": 2e-2}  # relative difference from fp32
BEAMS = (1, 4)
TIES = 0.98  # of the translations; near ties fall either way in fp32


class Decoded(Untested):
    """Its evaluation compares the translations of this device with those of the CPU."""

    __module__ = Translation.__module__

    def evaluate(self, model: Any, device: Any) -> dict[str, float]:
        import numpy as np

        from workers.workloads.translation.beam_search import SearchOptions, translate

        encoded = self.prepared.valid.sources
        split = np.split(encoded.ids, encoded.offsets[1:])
        sources = [ids.tolist() for ids in split[: int(self.option("eval_sentences"))]]
        on_cpu = self.build_model().eval()
        on_cpu.load_state_dict(model.state_dict(), strict=False)  # tied tensors have one name
        found = {}
        for beam in BEAMS:
            search = SearchOptions(beam)
            pairs = zip(
                translate(model, sources, search), translate(on_cpu, sources, search), strict=True
            )
            found[f"equal_{beam}"] = sum(a == b for a, b in pairs) / len(sources)
        return found


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    able = PRECISIONS if target.cuda else ("fp32", "bf16")
    found = [
        Case(name, {"precision": name}, "losses", 90.0, quick=name in ("fp32", "bf16"))
        for name in able
    ]
    return [*found, Case("decoding in fp32", {}, "decoding", 240.0)]


def measure(target: Target, case: Case) -> Row:
    """The training loss of each fifth of 50 updates, or the share of equal translations."""
    if case.name == "decoding in fp32":
        return _decoded(target)
    updates = target.size(50, 5)
    options = {**_options(target, updates), "evaluate_updates": updates // 5, **case.settings}
    _, reports = train_once(target, options)
    return {"losses": [report.metrics["train_loss"] for report in reports]}


def _decoded(target: Target) -> Row:
    updates = target.size(400, 5)
    options = _options(target, updates)
    options |= {"num_layers": 2, "eval_sentences": target.size(200, 4)}
    outcome, _ = train_once(target, options, kind=Decoded)
    return {f"equal_{beam}": outcome.metrics[f"equal_{beam}"] for beam in BEAMS}


def _options(target: Target, updates: int) -> dict[str, Any]:
    return {
        **base(target),
        "dropout": 0.0,
        "batch_tokens": target.size(4096, 256),
        "max_updates": updates,
        "max_epochs": None,
        "evaluate_seconds": None,
        "checkpoint_seconds": None,
    }


def claims(rows: Rows) -> list[Claim]:
    """Losses are those of fp32 within 2e-2; translations are the CPU's but for ties."""
    reference = rows.get("fp32", {}).get("losses")
    found = []
    for name, limit in EQUAL.items():
        losses = rows.get(name, {}).get("losses")
        difference = largest_difference(losses, reference) if losses and reference else None
        found.append(at_most(f"loss in {name}, relative to fp32", difference, limit))
    decoded = rows.get("decoding in fp32", {})
    for beam in BEAMS:
        name = f"share of translations equal to the CPU's, beam {beam}"
        found.append(at_least(name, decoded.get(f"equal_{beam}"), TIES))
    return found


def largest_difference(losses: list[float], reference: list[float]) -> float:
    """The largest relative difference of two series."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))


def line(row: Row) -> str:
    if "losses" in row:
        return " ".join(f"{loss:.4f}" for loss in row["losses"])
    return ", ".join(f"beam {beam}: {row[f'equal_{beam}']:.3f} equal" for beam in BEAMS)


STAGE = Stage("losses by precision, and decoding in fp32", cases, measure, claims, line)
