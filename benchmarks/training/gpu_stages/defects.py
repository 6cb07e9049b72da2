"""Defects of the GPU path that were found once, each tried again in a process of its own."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping

import torch

from benchmarks.common.bounds import Claim
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    """Most need a GPU."""
    return [
        Case(name, {}, name, 60.0, quick=True)
        for name in CASES
        if target.cuda or name in ("gloo", "skipped")
    ]


def measure(target: Target, case: Case) -> Row:
    """What was found, in words; an exception if the defect is there."""
    return {"found": CASES[case.name](torch.device(target.device))}


def cublas(device: torch.device) -> str:
    """`deterministic` must act on the first product of a process that has looked at its GPU."""
    from search_spaces.knobs import KNOBS

    torch.ones(8, device=device).sum().item()
    with (
        warnings.catch_warnings(record=True) as seen,
        KNOBS.get("determinism")().applied({"deterministic": True}),
    ):
        warnings.simplefilter("always")
        square = torch.randn(256, 256, device=device)
        (square @ square).sum().item()
    if any("CUBLAS" in str(warning.message) for warning in seen):
        raise RuntimeError("cuBLAS has begun before the knob was set: its products differ")
    return "products are deterministic"


def poisoned(device: torch.device) -> str:
    """After an assertion on the device, the end of the process must not hide the cause."""
    from workers.ranks import connect

    connect(0, 1, f"file://{tempfile.mktemp()}", device)
    values = torch.ones(4, device=device)
    torch.distributed.all_reduce(values)
    try:
        values[torch.full((1,), 9, device=device)] += 1
        torch.cuda.synchronize()
    except RuntimeError as error:
        return f"silent after {str(error).splitlines()[0]}"
    raise RuntimeError("the assertion was not raised")


def gloo(device: torch.device) -> str:
    """A gang of GPU ranks with gloo must end without an error of its own."""
    from workers.ranks import connect, disconnect

    connect(0, 1, f"file://{tempfile.mktemp()}", device, "gloo")
    disconnect()
    return "silent"


def sparse(device: torch.device) -> str:
    """NCCL sums no sparse gradients: once it does, the knob may be offered with `ddp`."""
    from workers.ranks import connect

    connect(0, 1, f"file://{tempfile.mktemp()}", device)
    values = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2, 4), (5, 4)).to(device)
    try:
        torch.distributed.all_reduce(values)
    except RuntimeError as error:
        return f"NCCL refuses: {str(error).splitlines()[0][:90]}"
    return "NCCL sums sparse tensors"


def skipped(device: torch.device) -> str:
    """A skipped first step of the fused kernels must leave no trace."""
    from workers.training.optimizers import build_optimizer, step

    found = []
    for kind in ("sgd", "adam", "adamw"):
        weights = [torch.nn.Parameter(torch.ones(1000, device=device)) for _ in range(2)]
        for weight, skips in zip(weights, (1, 0), strict=True):
            optimizer = build_optimizer({"weight": weight}, {"optimizer": kind, "momentum": 0.9})
            optimizer.param_groups[0]["lr"] = 0.1
            junk = torch.full((1000,), float("nan"), device=device)
            del junk  # what memory holds that nobody has set
            for factor in [float("inf")] * skips + [0.5] * 3:
                weight.grad = torch.full_like(weight, factor)
                flag = torch.tensor(float(factor == float("inf")), device=device)
                step(optimizer, skipped=flag)
        if not torch.equal(*weights):
            raise RuntimeError(f"{kind}: a skipped first step changes the next ones")
        found.append(kind)
    return f"no trace with {', '.join(found)}"


CASES: dict[str, Callable[[torch.device], str]] = {
    one.__name__: one for one in (cublas, poisoned, gloo, sparse, skipped)
}


def claims(rows: Rows) -> list[Claim]:
    """A defect is a failed case."""
    return []


def line(row: Row) -> str:
    return str(row["found"])


STAGE = Stage("defects that were found once", cases, measure, claims, line)
