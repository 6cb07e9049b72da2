"""The user's prior as a term of the acquisition (piBO).

Hvarfner et al., "piBO: Augmenting acquisition functions with user beliefs for Bayesian
optimization", ICLR 2022: the acquisition is multiplied by the prior to the power beta / n. After n
trials the data outweigh it.
"""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from automl.suggesters.bayes.model.data import Array
from automl.suggesters.knowledge import InformedPrior
from automl.suggesters.user_prior import UserPrior

BETA: Final = 10.0  # after this many trials the prior has the power 1


def prior_term(
    prior: UserPrior | InformedPrior, num_trials: int
) -> Callable[[Array], Tensor] | None:
    """The term of the acquisition after this many trials; None if the user gave no prior."""
    if not prior:
        return None
    weight = BETA / max(1, num_trials)
    return lambda unit: weight * torch.from_numpy(prior.log_density(unit))
