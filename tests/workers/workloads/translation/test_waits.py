"""On a GPU the host waits for nothing to compute the loss of a translation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from counting import Counting

from workers.data import BatchShare
from workers.device.fake_tensors import planned_for
from workers.workloads.translation import Translation

FIXED = {**Translation.smallest["fixed"], "batch_tokens": 256, "dropout": 0.0}


def made(**params: Any) -> tuple[Translation, torch.nn.Module, BatchShare]:
    workload = Translation(params, Translation.smallest["data"], FIXED, seed=3)
    share = BatchShare.of(workload, next(workload.train_batches(0)), accumulation=2)
    return workload, workload.build_model(), share


def slopes(
    workload: Translation, model: torch.nn.Module, part: Any
) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = workload.loss(model, part)
    loss.backward()
    return loss.item(), {
        n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None
    }


@pytest.mark.parametrize("named", [{}, {"chunked_loss": True}, {"compile_scope": "layers"}])
def test_the_loss_of_a_part_waits_for_nothing(named: dict[str, Any]) -> None:
    workload, model, share = made(**named)
    for part in share.parts:
        expected, grads = slopes(workload, model, dict(part))
        with planned_for("cuda"), Counting() as counting:
            workload.loss(model, part).backward()
        assert counting.calls["mm"] + counting.calls["addmm"] > 0
        assert counting.waits == 0, counting.calls
        with planned_for("cuda"):
            found, same = slopes(workload, model, part)
        assert found == pytest.approx(expected, rel=1e-5)
        for name, slope in grads.items():
            torch.testing.assert_close(same[name], slope, rtol=1e-4, atol=1e-6, msg=name)
