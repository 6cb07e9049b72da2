"""Adam on the rows of embeddings that a batch looks up, an optimizer of choice for all else."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from search_spaces.errors import UsageError
from search_spaces.knobs.sparsity import SPARSE_GRADIENTS


class SparseAdamWithOther(Optimizer):
    """torch's SparseAdam for embeddings, another optimizer for the other parameters.

    Args:
        embeddings: parameters with sparse gradients, at least one.
        other: of the other parameters.
        rule: the constants of Adam (Kingma and Ba 2015, https://arxiv.org/abs/1412.6980).
    """

    def __init__(
        self, embeddings: Sequence[nn.Parameter], other: Optimizer, rule: Mapping[str, Any]
    ) -> None:
        constants = {name: rule[name] for name in ("betas", "eps")}
        sparse = torch.optim.SparseAdam(list(embeddings), lr=1.0, **constants)  # 0 is refused
        self._parts = (sparse, other)
        # The groups and the state are those of the parts, so a new learning rate reaches them.
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        for part in self._parts:
            part.state = self.state
        self._embeddings = tuple(embeddings)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step both parts; gradients are there already, so there is no closure."""
        for part in self._parts:
            part.step()
        for parameter in self._embeddings:
            state = self.state[parameter]
            if isinstance(state.get("step"), int):  # a checkpoint keeps tensors alone
                state["step"] = torch.tensor(float(state["step"]))


def look_up_sparsely(
    model: nn.Module, embeddings: Sequence[str], values: Mapping[str, Any]
) -> None:
    """Let embeddings of a model have sparse gradients if the option says so.

    Args:
        model: changed in place.
        embeddings: dotted names of the plan.
        values: of every option of the trial.

    Raises:
        UsageError: the plan names no embedding.
    """
    if not SPARSE_GRADIENTS.value(values):
        return
    if not embeddings:
        raise UsageError("sparse_gradients needs a workload whose plan names embeddings")
    for name in embeddings:
        module = model.get_submodule(name)
        if not isinstance(module, nn.Embedding):
            raise UsageError(f"{name!r} is a {type(module).__name__}, which has no sparse gradient")
        module.sparse = True
