"""Regret of `small_network`'s sweeps: rows, means and claims for `any_training.py`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_most, complete
from benchmarks.training.small_network_sweeps import FORMS, best_so_far, run_optuna, run_sweep

ROWS: Final = store.RESULTS / "any_training_regret.jsonl"
EPOCHS: Final = 540  # of a sweep: those of 20 whole trials
SEEDS: Final = 10
QUICK_SEEDS: Final = 2
PEER: Final = "optuna hyperband"
CONTESTANTS: Final = (*(f"{form} {s}" for s in ("none", "curve") for form in FORMS), PEER)
SHARES: Final = {"1/4": 0.25, "1/2": 0.5, "all": 1.0}  # of the epochs
Runs = Mapping[tuple[Any, ...], store.Row]


def measure(contestant: str, seed: int) -> store.Row:
    """The best loss after these shares of the epochs."""
    began = time.perf_counter()
    if contestant == PEER:
        losses = run_optuna(seed, EPOCHS)
    else:
        form, stopper = contestant.split()
        losses = run_sweep(form, stopper, seed, EPOCHS)
    assert len(losses) == EPOCHS, f"{contestant} has trained {len(losses)} epochs"
    best = best_so_far(losses)
    row = {"contestant": contestant, "seed": seed}
    row |= {name: best[round(share * EPOCHS) - 1] for name, share in SHARES.items()}
    return {**row, "wall": round(time.perf_counter() - began, 1)}


def load() -> dict[tuple[Any, ...], store.Row]:
    """The stored rows by contestant and seed."""
    return store.load(ROWS, "contestant", "seed")


def measure_missing(seeds: int = SEEDS) -> None:
    """Measure and store the missing rows, all contestants of a seed before the next seed."""
    for seed in range(seeds):
        for contestant in CONTESTANTS:
            if (contestant, seed) not in load():
                row = measure(contestant, seed)
                store.append(ROWS, row)
                print(row, flush=True)


def measure_quickly() -> list[store.Row]:
    """The rows of `curve` for the first seeds, measured now."""
    rows = []
    for seed in range(QUICK_SEEDS):
        for form in FORMS:
            rows.append(measure(f"{form} curve", seed))
            print(rows[-1], flush=True)
    return rows


def table(rows: Runs) -> str:
    """Mean regret of each contestant: how far the best loss is above the best of all runs."""
    least = _reference(rows.values())
    lines = [f"{'mean regret after':<20}" + "".join(f"{name:>9}" for name in SHARES) + "   seeds"]
    for contestant in CONTESTANTS:
        mine = [row for row in rows.values() if row["contestant"] == contestant]
        if mine:
            means = "".join(f"{_mean(mine, name, least):9.4f}" for name in SHARES)
            lines.append(f"{contestant:<20}{means}{len(mine):8}")
    return "\n".join(lines)


def claims(rows: Runs) -> list[Claim]:
    """In each form `curve` is better than `none`, and at the end no worse than the peer."""
    wanted = [(contestant, seed) for contestant in CONTESTANTS for seed in range(SEEDS)]
    made = [complete("regret", [key for key in wanted if key not in rows])]
    least = _reference(rows.values())
    mean = {
        contestant: {
            name: _mean([r for r in rows.values() if r["contestant"] == contestant], name, least)
            for name in SHARES
        }
        for contestant in CONTESTANTS
    }
    for form in FORMS:
        curve, none = mean[f"{form} curve"], mean[f"{form} none"]
        for name in ("1/2", "all"):
            about = f"mean regret of a {form} with curve after {name} of the epochs"
            made.append(at_most(about, curve[name], none[name], "that with none"))
        about = f"mean regret of a {form} with curve"
        made.append(at_most(about, curve["all"], mean[PEER]["all"], f"that of {PEER}"))
    return made


def quick_claims(stored: Runs, measured: Sequence[store.Row]) -> list[Claim]:
    """`curve`, measured now, beside the stored rows of `none` in the same forms."""
    least = _reference([*stored.values(), *measured])
    none = [row for row in stored.values() if row["contestant"].endswith(" none")]
    mine, theirs = (_mean(rows, "all", least) for rows in (measured, none))
    return [at_most("mean regret with curve", mine, theirs, "the stored rows of none")]


def _reference(rows: Iterable[store.Row]) -> float:
    """The best loss of all runs, from which regret is counted."""
    return min((row["all"] for row in rows), default=0.0)


def _mean(rows: Iterable[store.Row], name: str, least: float) -> float | None:
    values = [row[name] - least for row in rows]
    return float(np.mean(values)) if values else None
