"""Strategies on NCCL with one rank, and two gloo ranks that share one GPU.

On one GPU this is as far as several GPUs can be tried: DDP, FSDP2 and DTensor run their collective
calls, with nobody to talk to.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from itertools import islice
from typing import Any

from benchmarks.common.bounds import Claim, at_most
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target
from benchmarks.training.gpu_stages._trials import Untested, attempt, base, corpus, gang, state_of
from benchmarks.training.gpu_stages.losses import largest_difference

ALONE = ("single", "ddp", "fsdp", "tensor")
SHARED = ("single", "ddp")
EQUAL = 1e-5  # relative difference from single


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    """Each in a process of its own, because a process group belongs to the process."""
    found = []
    for name in ALONE:
        settings = {"strategy": name, "ranks": 1}
        found.append(Case(f"{name}, 1 rank", settings, name, 150.0, quick=name == "single"))
    for name in SHARED:
        settings = {"strategy": name, "ranks": 2}
        case = f"{name} beside 2 ranks" if name == "single" else f"{name}, 2 gloo ranks on one GPU"
        found.append(Case(case, settings, f"{name} 2", 180.0))
    return found


def measure(target: Target, case: Case) -> Row:
    """The loss of each of some updates."""
    settings = case.settings
    losses = (_alone if settings["ranks"] == 1 else _shared)(target, settings["strategy"])
    return {"losses": losses}


def _options(target: Target, updates: int) -> dict[str, Any]:
    return {
        **base(target),
        "dropout": 0.0,
        "batch_tokens": target.size(2048, 256),
        "max_updates": updates,
        "evaluate_updates": 1,
        "evaluate_seconds": None,
        "checkpoint_seconds": None,
    }


def _alone(target: Target, name: str) -> list[float]:
    """The strategy itself on a group of one rank, which the trainer would not make."""
    import torch

    from workers.device.precision import Precision
    from workers.parallel import STRATEGIES
    from workers.parallel.mesh import Mesh
    from workers.ranks import connect, disconnect
    from workers.training.optimizers import build_optimizer, step
    from workers.training.setup import build_model

    device = torch.device(target.device)
    workload = Untested(_options(target, 8), corpus(target), {}, seed=0)
    values = state_of(workload)
    with tempfile.TemporaryDirectory() as folder:
        if name != "single":
            connect(0, 1, f"file://{folder}/meet", device)
        try:
            strategy = STRATEGIES.get(name)(Mesh(), workload, device, values)
            strategy.wrap(build_model(workload, values, strategy.build_device, 0))
            optimizer = build_optimizer(strategy.parameters(), values)
            precision = Precision("fp32", device)
            losses = []
            for batch in islice(workload.train_batches(0), 8):
                for group in optimizer.param_groups:
                    group["lr"] = 1e-3
                optimizer.zero_grad(set_to_none=True)
                share = strategy.gradients(strategy.share_of(batch), precision)
                if not math.isfinite(float(strategy.grad_norm())):
                    raise FloatingPointError("the norm of the gradient is not finite")
                step(optimizer)
                losses.append(float(share))
            return losses
        finally:
            disconnect()


def _shared(target: Target, name: str) -> list[float]:
    """A real gang whose ranks see the same GPU; NCCL refuses that, gloo does not."""
    options = {**_options(target, 6), "eval_sentences": 2}
    if name == "single":
        outcome, reports = attempt(target, None, options, corpus(target), "translation")
    else:
        options |= {"parallelism": name, "ranks": 2, "backend": "gloo"}
        outcome, reports = gang(target, options)
    if outcome.failure:
        raise RuntimeError(f"{outcome.failure}: {outcome.message}")
    return [report.metrics["train_loss"] for report in reports]


def claims(rows: Rows) -> list[Claim]:
    """Every strategy computes what `single` does."""
    found = []
    for name in ALONE[1:]:
        claim = f"loss of {name} with one rank, relative to single"
        found.append(_equal(claim, rows, f"{name}, 1 rank", "single, 1 rank"))
    claim = "loss of two gloo ranks on one GPU, relative to single"
    found.append(_equal(claim, rows, "ddp, 2 gloo ranks on one GPU", "single beside 2 ranks"))
    return found


def _equal(claim: str, rows: Rows, one: str, reference: str) -> Claim:
    pair = [rows.get(name, {}).get("losses") for name in (one, reference)]
    return at_most(claim, largest_difference(*pair) if all(pair) else None, EQUAL)  # type: ignore[arg-type]


def line(row: Row) -> str:
    return " ".join(f"{loss:.6f}" for loss in row["losses"])


STAGE = Stage("NCCL with one rank, two gloo ranks on one GPU", cases, measure, claims, line)
