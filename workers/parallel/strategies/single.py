"""No parallelism: one rank has the whole model and the whole batch."""

from torch import nn

from search_spaces.knobs.parallelism import StrategyNeeds
from workers.parallel.base import Strategy


class Single(Strategy):
    """The reference: every other strategy computes the same function."""

    needs = StrategyNeeds("the whole model on one device", min_ranks=1, max_ranks=1)
    replicated = True

    def wrap(self, model: nn.Module) -> None:
        self.plain = self.model = model
