"""Muon for the matrices inside a model, AdamW for all else."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer

MOMENTUM = 0.95  # Jordan's


class MuonWithAdamW(Optimizer):
    """Orthogonalised momentum for matrices, AdamW for the other parameters, in one optimizer.

    Sources: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon); the step of a matrix is
    scaled to that of AdamW, so that one learning rate suits both (Liu et al. 2025,
    https://arxiv.org/abs/2502.16982).

    Args:
        matrices: groups of parameters of two dimensions, at least one.
        others: groups of the other parameters, at least one.
        adamw: further arguments of AdamW.
    """

    def __init__(
        self, matrices: list[dict[str, Any]], others: list[dict[str, Any]], **adamw: Any
    ) -> None:
        muon = torch.optim.Muon(matrices, lr=0.0, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw")
        self._parts: tuple[Optimizer, ...] = (muon, torch.optim.AdamW(others, lr=0.0, **adamw))
        # The groups and the state are those of the parts, so a new learning rate reaches them.
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        for part in self._parts:
            part.state = self.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step both parts; gradients are there already, so there is no closure."""
        for part in self._parts:
            part.step()


def split(groups: Iterable[dict[str, Any]], apart: set[int]) -> tuple[list[Any], list[Any]]:
    """The groups of matrices that Muon takes, and the groups of all else; none is empty.

    Args:
        groups: of parameters.
        apart: identities of parameters that are no matrices inside of the model.
    """
    matrices: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for group in groups:
        inside = [p for p in group["params"] if p.ndim == 2 and id(p) not in apart]
        rest = [p for p in group["params"] if p.ndim != 2 or id(p) in apart]
        matrices += [{**group, "params": inside}] if inside else []
        others += [{**group, "params": rest}] if rest else []
    return matrices, others
