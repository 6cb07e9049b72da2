"""The search, in ten lines. `n` trials, `d` parameters, `g` goals, `K` hyperparameter vectors.

| symbol | shape | what it is |
|---|---|---|
| `history`, `pending` | | trials that have ended, and those that wait or run |
| `data.unit` | `n x d` | configurations in the unit cube, NaN if inactive (data) |
| `data.losses` | `n x g` | losses, NaN if the trial has none |
| `X`, `y` | `n x c`, `n` | coordinates of the kernel, minus transformed losses (kernel, model) |
| `kernel.raw` | `K x (2 + d)` | standardised hyperparameters: outputscale, noise, lengthscales |
| `posterior` | | a Gaussian process for each metric and kind of failure (surrogates, quantities) |
| `acquisition` | `m` | log value of `m` candidates, a sum of terms (acquisition) |
| `best` | `b x d` | incumbents, beside which candidates lie (data) |
| `pool` | `m x d` | candidates (candidates) |

    1. data = reader(history)                          trials as arrays
    2. design.pool(...) while design.goes_on(...)      the defaults, then four inner points
    3. posterior = surrogates.fit(data)                K vectors of each surrogate
    4. smoothed = posterior.smoothed()                 expected losses of the trials
    5. best = best_rows(data, feasible, smoothed)      the ten best, or the front
    6. acquisition = Acquisition(posterior, ...)       log improvement and what speaks against it
    7. posterior = posterior.with_pending(...)         pending trials end as predicted
    8. best_drawn(sampler, acquisition.drawn, ...)     some: the best of a function drawn from it
    9. maximise(sampler, acquisition, best, ...)       the others: the most valuable candidate
   10. sampler.first_new(pool, taken, rng)             legal, and never tried before
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from automl.core import Constraint, Goal, Trial
from automl.suggesters.base import Prospect, SearchContext, Suggester
from automl.suggesters.domain import Domain
from automl.suggesters.user_prior import UserPrior, best_of, prior_from_best
from search_spaces import Space
from workers.protocol import Params

from .candidates import (
    NUM_DESIGN,
    CandidateSampler,
    InitialDesign,
    best_drawn,
    maximise,
    untried_option,
    with_option,
)
from .data import Array, TrialData, TrialReader, best_rows

if TYPE_CHECKING:
    from torch import Tensor

    from .acquisition import Acquisition, MakeAcquisition
    from .surrogates import MakeModel, Surrogates

DRAWN = 0.33  # share of the suggestions that are Thompson draws, until half of the trials are left
USUAL_TRIALS = 50  # if no budget says how many there will be
MANY = 8  # more suggestions at once are all drawn
ACCEPTED = 0.1  # probability of success demanded of an option that has not succeeded
MAX_PENDING = 200  # beside more pending trials too: to condition on each costs their cube


@dataclass(frozen=True)
class Policy:
    """Which rules are on; a benchmark flips one to measure its effect.

    Args:
        draws: some suggestions maximise a function drawn from the posterior (Thompson, 1933).
        demand: a probability of success is demanded, which rises with each failure.
        options: an option that has not succeeded is tried now and then, up to three times.
        smoothed: the surrogate's mean, not the noisy loss, says which trials are best.
    """

    draws: bool = True
    demand: bool = True
    options: bool = True
    smoothed: bool = True


ALL_RULES = Policy()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, so that rounding does not depend on the machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class BayesSuggester(Suggester):
    """Maximises an acquisition under Gaussian processes with averaged hyperparameters.

    Args:
        space: what is tuned.
        goals: at least one.
        constraints: bounds on metrics.
        seed: of everything random.
        context: limits, user's prior and budget; by default there is none.
        acquisition: makes one of BoTorch's acquisitions, whose values are logarithms, from a model,
            the coordinates of the feasible trials `n x c`, and their predicted values `n x g`
            (larger is better). By default it is ours.
        model: fits one of BoTorch's models to coordinates `n x c` and values `n x 1` (minus the
            transformed losses). By default it is ours.
        policy: which rules are on; by default all are.
    """

    name: ClassVar[str] = "bayes"
    uses_context: ClassVar[bool] = True
    predicts_gain: ClassVar[bool] = True

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint] = (),
        *,
        seed: int = 0,
        context: SearchContext | None = None,
        acquisition: MakeAcquisition | None = None,
        model: MakeModel | None = None,
        policy: Policy = ALL_RULES,
    ) -> None:
        super().__init__(space, goals, constraints, seed=seed)
        self._context = context or SearchContext(Domain(space))
        self._make_acquisition, self._make_model = acquisition, model
        self._policy = policy
        metric = self.goals[0].metric
        self._best_earlier = [best_of(sweep, metric) for sweep in self._context.earlier]
        best = prior_from_best(space, [*chain(*self._best_earlier)])
        self._prior = UserPrior(space, {**best, **self._context.prior})
        self._sampler = CandidateSampler(self._context.domain, self._prior)
        self._reader = TrialReader(space, self.goals, [c.metric for c in self.constraints])

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        data, taken = self._reader(history), self.trial_keys(history, pending)
        ahead = [trial.params for trial in pending]
        many = count > MANY or len(ahead) > MAX_PENDING
        found: list[Params] = []
        acquisition = None
        while len(found) < count:
            rng = np.random.default_rng([self.seed, len(history), len(pending), len(found)])
            designs = self._design.goes_on(data.failed, len(ahead))
            if designs or not self._surrogates.possible(data):
                more = self._designed(data, ahead, taken, rng)
            else:
                with one_thread():
                    acquisition = acquisition or self._acquisition(data, history)
                    beside, size = ([], count - len(found)) if many else (ahead, 1)
                    draws = many or self._draws(len(taken), rng)
                    more = self._next(data, acquisition, beside, taken, rng, draws * size)
            if not more:
                break
            found += more
            ahead += more
            taken.update(map(self.space.key, more))
        return found

    def _next(
        self,
        data: TrialData,
        acquisition: Acquisition,
        pending: Sequence[Params],
        taken: set[Hashable],
        rng: np.random.Generator,
        count: int,
    ) -> list[Params]:
        """The next configurations after the initial design; none if no new one is left.

        Args:
            count: of Thompson draws; 0 for the maximum of the acquisition.
        """
        best = self._best(data, acquisition)
        ahead = self.space.encode(pending)
        posterior = acquisition.posterior.with_pending(ahead)
        acquisition = replace(acquisition, posterior=posterior)
        if self._policy.options:
            known = np.concatenate([data.unit, ahead])
            failed = np.concatenate([data.failed, np.zeros(len(ahead), dtype=bool)])
            option = untried_option(self._sampler, known, failed, len(taken))
            score = replace(acquisition, demanded=min(acquisition.demanded, ACCEPTED))
            found = with_option(self._sampler, score, best, option, taken, rng) if option else []
            if found:
                return found
        if not count:
            return maximise(self._sampler, acquisition, best, taken, rng)
        import torch

        generator = torch.Generator().manual_seed(int(rng.integers(1 << 31)))
        draws = partial(acquisition.drawn, count=count, generator=generator)
        return best_drawn(self._sampler, draws, best, taken, rng)

    def _draws(self, number: int, rng: np.random.Generator) -> bool:
        """Whether the next suggestion is a Thompson draw; fewer are as the budget ends."""
        if len(self.goals) > 1 or self._make_acquisition or not self._policy.draws:
            return False
        left = 1.0 - number / (self._context.budget.trials or USUAL_TRIALS)
        return bool(rng.random() < DRAWN * min(1.0, max(0.0, 2.0 * left)))

    def encode(self, configurations: Sequence[Params]) -> Tensor:
        """Coordinates `m x c` of configurations, as models and acquisitions see them."""
        return self._surrogates.goal_fitters[0].encoder(self.space.encode(configurations))

    def warm(self) -> None:
        from . import acquisition  # noqa: F401

    def prospect(
        self, history: Sequence[Trial], pending: Sequence[Trial], params: Params | None
    ) -> Prospect | None:
        least = 2 * NUM_DESIGN if params is not None else 2
        data = self._reader(history)
        few = len(self.goals) > 1 or len(data.unit) < least
        if few or not self._surrogates.possible(data):
            return None
        from .acquisition import prospect

        with one_thread():
            acquisition = self._acquisition(data, history)
            waiting = self.space.encode([trial.params for trial in pending])
            rng = np.random.default_rng([self.seed, len(history)])
            best = self._best(data, acquisition)
            others = [
                self._sampler.everywhere(rng, 200),
                self._sampler.near(rng, best[:3], 100, (0.01, 0.3)),
            ]
            return prospect(
                replace(acquisition, posterior=acquisition.posterior.with_pending(waiting)),
                data,
                self.space.encode([] if params is None else [params]),
                np.concatenate(others),
            )

    @cached_property
    def _surrogates(self) -> Surrogates:
        from .surrogates import Surrogates

        return Surrogates(
            self.space,
            self.goals,
            self.constraints,
            self.seed,
            self._make_model,
            whole=bool(self._make_acquisition or self._make_model),
        )

    @cached_property
    def _design(self) -> InitialDesign:
        turns = [params for turn in zip_longest(*self._best_earlier) for params in turn if params]
        rng = np.random.default_rng(self.seed)
        fitted = [self._context.domain.repair(params, rng) for params in turns]
        earlier = self.space.encode([params for params in fitted if params])
        return InitialDesign(self._sampler, earlier)

    def _designed(
        self, data: TrialData, ahead: list[Params], taken: set[Hashable], rng: np.random.Generator
    ) -> list[Params]:
        """A configuration of the initial design, first the defaults unless earlier ones exist."""
        first = not taken and not any(self._best_earlier)
        mode = {name: prior.at[0] for name, prior in self._prior.by_name.items()}
        middle = self._context.domain.repair(mode, rng) if first else None
        if middle is not None:
            return [middle]
        success = self._surrogates.failures(data).log_probability if data.failed.any() else None
        known = np.concatenate([data.unit, self.space.encode(ahead)])
        pool = self._design.pool(known, data.failed, success, rng)
        return self._sampler.first_new(pool, taken, rng)

    def _acquisition(self, data: TrialData, history: Sequence[Trial]) -> Acquisition:
        from .acquisition import Acquisition, accepted_risk, cost_term, prior_term

        posterior = self._surrogates.fit(data)
        demanded = 1.0 - accepted_risk(data.failed) if self._policy.demand else 0.0
        fitter = self._surrogates.cost_fitter
        cost = cost_term(self.space, self._context.budget, fitter, history)
        terms = [prior_term(self._prior, len(history)), *([cost] if cost else [])]
        return Acquisition(posterior, demanded, terms, self._make_acquisition)

    def _best(self, data: TrialData, acquisition: Acquisition) -> Array:
        posterior = acquisition.posterior
        smoothed = posterior.smoothed() if self._policy.smoothed else None
        return data.unit[best_rows(data, posterior.feasible, smoothed)]
