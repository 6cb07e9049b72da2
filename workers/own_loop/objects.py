"""What `trial.prepare` returns: model, optimizer, scheduler and loader of a prepared loop."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._pytree import tree_flatten

from search_spaces.errors import UsageError
from workers.ranks.process_group import value_of_rank_0

from .loop import PreparedLoop

_END: Final = object()


class PreparedModel(nn.Module):
    """The user's model in the number format and under the strategy of the trial.

    `module` is the model itself, and its attributes and methods are reached here too. Every rank
    calls `state_dict` and `load_state_dict`. The state has whole tensors by the names of the
    model, on the CPU of rank 0; it is empty on other ranks.
    """

    def __init__(self, loop: PreparedLoop) -> None:
        super().__init__()
        self.module = loop.strategy.plain
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the model returns."""
        return self._loop.forward(*inputs, **named)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:  # type: ignore[override]
        """See the class; a parameter of several names is there under each."""
        state: dict[str, Any] = dict(self._loop.strategy.state())
        names: dict[int, str] = {}
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            first = names.setdefault(id(parameter), name)
            if first in state:
                state[name] = state[first]
        return state

    def load_state_dict(self, state: Mapping[str, Any], *_: Any, **__: Any) -> None:  # type: ignore[override]
        """Overwrite the weights by those of rank 0; UsageError if a tensor is missing."""
        self._loop.strategy.load(state)


class PreparedOptimizer(Optimizer):
    """The user's optimizer; `step` and `zero_grad` act once an update, not at each microbatch.

    Every rank calls `state_dict` and `load_state_dict`. The state names parameters as the model
    does, so it fits any strategy.

    Attributes:
        updates: how many there were, also in earlier attempts if the state is restored.
    """

    def __init__(self, loop: PreparedLoop, optimizer: Optimizer) -> None:
        shared = {name: value for name, value in vars(optimizer).items() if name != "step"}
        self.__dict__.update(shared)  # groups and state are the optimizer's own
        self._loop = loop
        self._optimizer = optimizer

    @property
    def updates(self) -> int:
        """See the class."""
        return self._loop.updates

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the weights, unless microbatches of the update are still to come."""
        if closure is not None:
            raise UsageError("the step of a prepared optimizer takes no closure")
        self._loop.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, unless they wait for the update."""
        if self._loop.may_clear:
            self._optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """See the class."""
        loop, scaler = self._loop, self._loop.precision.scaler
        settings = [{k: v for k, v in g.items() if k != "params"} for g in self.param_groups]
        return {
            "state": loop.strategy.optimizer_state(self._optimizer),
            "settings": settings,
            "scaler": scaler.state() if scaler else None,
            "updates": loop.updates,
            "microbatches": loop.microbatches,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`; the kernels of the optimizer stay as they are."""
        loop, scaler = self._loop, self._loop.precision.scaler
        for group, settings in zip(self.param_groups, state["settings"], strict=True):
            group.update({k: v for k, v in settings.items() if k not in ("fused", "foreach")})
        loop.strategy.load_optimizer_state(self._optimizer, state["state"])
        if scaler and state["scaler"]:
            scaler.load(state["scaler"])
        loop.updates = loop._begun = state["updates"]
        loop.microbatches = state["microbatches"]


class PreparedScheduler:
    """The user's scheduler; `step` acts once an update, and at the end of an epoch."""

    def __init__(self, loop: PreparedLoop, scheduler: LRScheduler) -> None:
        self._loop = loop
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def step(self, *arguments: Any) -> None:
        """The next learning rate, unless the update is still to come."""
        if not self._loop.waiting:
            self._scheduler.step(*arguments)


class PreparedLoader:
    """The microbatches of this rank, from a loader of global batches, on the trial's device.

    The loader draws from a random state of torch of its own, the same on every rank: its batches
    depend neither on the strategy, nor on what the model draws.
    """

    def __init__(self, loop: PreparedLoop, loader: Any) -> None:
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, torch.utils.data.DistributedSampler):
            raise UsageError("trial.prepare shares batches out: leave DistributedSampler out")
        loop.loads = True
        self._loop = loop
        self._loader = loader
        drawn = (random.getstate(), np.random.get_state(), torch.get_rng_state())
        ours, numpys, self._state = value_of_rank_0(drawn)
        random.setstate(ours)
        np.random.set_state(numpys)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader) * self._loop.accumulation

    def __iter__(self) -> Iterator[Any]:
        with self._drawing():
            batches = iter(self._loader)
        while True:
            with self._drawing():
                batch = next(batches, _END)
            if batch is _END:
                self._loop.ended_untrained = not self._loop.trained
                return
            if self._loop._begun == 0 and self._loop.strategy.batch_degree > 1:
                _check_same(batch)
            yield from self._loop.microbatches_of(batch)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        before = torch.get_rng_state()
        torch.set_rng_state(self._state)
        try:
            yield
        finally:
            self._state = torch.get_rng_state()
            torch.set_rng_state(before)


def _check_same(batch: Any) -> None:
    """Raise UsageError if rank 0 has drawn another first batch."""
    leaves = [one for one in tree_flatten(batch)[0] if isinstance(one, Tensor)]
    mine = [(tuple(one.shape), float(one.double().sum())) for one in leaves]
    if mine != value_of_rank_0(mine):
        raise UsageError(
            "the loader of each rank must give the same global batches, which trial.prepare "
            "shares out: seed it by trial.seed, and leave out any split by rank"
        )
