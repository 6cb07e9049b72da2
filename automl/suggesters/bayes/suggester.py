"""The default suggester: Bayesian optimisation of mixed, conditional, noisy, failing searches.

What needs torch is imported in the functions that use it: torch takes longer to import than the
first configuration to make, and the first trial does not wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from automl.core import Constraint, Goal, Trial
from automl.suggesters.base import Belief, Prospect, SearchContext, Suggester
from automl.suggesters.domain import Domain
from automl.suggesters.knowledge import InformedPrior
from automl.suggesters.user_prior import UserPrior, best_of, prior_from_best
from search_spaces import Space
from workers.protocol import Params

from .candidates import CandidateSampler
from .design import NUM_DESIGN, InitialDesign
from .forced_exploration import (
    STALLED_EVERY,
    best_with_each_option,
    forced_option,
    rows_with,
)
from .model.data import Array, TrialData, TrialReader
from .policy import ALL_RULES, Policy
from .search import AcquisitionOptimizer

if TYPE_CHECKING:
    from torch import Tensor

    from .acquisition.acquisition import Acquisition, Term
    from .acquisition.cost import CostModel
    from .model.surrogates import Surrogates

MANY = 8  # more suggestions at once are a batch
MAX_PENDING = 200  # beside more pending trials, every suggestion is a batch
STALLED = 6  # trials without progress
ACCEPTED = 0.1  # probability of success demanded of an option of which all trials failed
DIFFERENT = 4.0  # its weight, in log improvement, of values that differ from those failures


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

    It begins with a design that covers the domain. Then it fits a surrogate for each goal,
    constraint and kind of failure, and maximises the sum of terms in `acquisition.acquisition`
    over many candidates everywhere and near the best. `policy` lists what it does beside that.

    Args:
        space: what is tuned.
        goals: at least one.
        constraints: bounds on metrics.
        seed: of everything random.
        context: limits, user's prior and budget; by default there is none.
        policy: which rules are on; by default all are.
    """

    name: ClassVar[str] = "bayes"
    uses_context: ClassVar[bool] = True
    predicts_gain: ClassVar[bool] = True
    guides_stopper: ClassVar[bool] = True

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint] = (),
        *,
        seed: int = 0,
        context: SearchContext | None = None,
        policy: Policy = ALL_RULES,
    ) -> None:
        super().__init__(space, goals, constraints, seed=seed)
        self._context = context or SearchContext(Domain(space))
        self._policy = policy
        metric = self.goals[0].metric
        self._best_earlier = [best_of(sweep, metric) for sweep in self._context.earlier]
        best = prior_from_best(space, [*chain(*self._best_earlier)])
        self._prior: UserPrior | InformedPrior = UserPrior(space, {**best, **self._context.prior})
        if self._context.knowledge:
            self._prior = InformedPrior(self._prior, self._context.knowledge)
        self._sampler = CandidateSampler(self._context.domain, self._prior, ends=policy.ends)
        self._optimizer = AcquisitionOptimizer(self._sampler)
        self._reader = TrialReader(space, self.goals, [c.metric for c in self.constraints])

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        """See `Suggester.suggest`."""
        legal = self._reader.legal(history)
        waiting = self._reader.legal(pending)
        data = self._reader(legal)
        taken = self.trial_keys(legal, waiting)
        configurations = [trial.params for trial in waiting]
        seeds = [self.seed, len(history), len(pending)]
        batch = count > MANY or len(waiting) > MAX_PENDING
        designed = self._design.goes_on(data, len(waiting) + count - 1)
        if designed and not batch and not data.failed.any():
            return self._suggest_each(data, history, configurations, taken, count, seeds)
        from .batch import suggest_batch

        with one_thread():
            if not batch:
                return self._suggest_each(data, history, configurations, taken, count, seeds)
            return suggest_batch(
                self._sampler,
                self._acquisition(data, len(waiting), history),
                data.unit[self._surrogates.incumbents.best_rows(data)],
                self.space.encode(configurations),
                taken,
                count,
                np.random.default_rng(seeds),
            )

    def _suggest_each(
        self,
        data: TrialData,
        history: Sequence[Trial],
        pending: list[Params],
        taken: set[Hashable],
        count: int,
        seeds: list[int],
    ) -> list[Params]:
        """One configuration after the other. A design without failures does not need torch."""
        found: list[Params] = []
        acquisition = None
        for i in range(count):
            if acquisition is None:
                acquisition = self._acquisition(data, len(pending) + i, history)
            ahead = self.space.encode([*pending, *found])
            rng = np.random.default_rng([*seeds, i])
            params = self._suggest_one(data, acquisition, ahead, taken, rng)
            if params is None:
                break
            found.append(params)
            taken.add(self.space.key(params))
        return found

    def warm(self) -> None:
        """See `Suggester.warm`."""
        from . import batch  # noqa: F401

    def expected_gain(self, history: Sequence[Trial], params: Params) -> float | None:
        """See `Suggester.expected_gain`. Near the best, the surrogate is linear in the goal."""
        with one_thread():
            data = self._reader(history)
            known = len(data) >= 2 * NUM_DESIGN and self._surrogates.possible(data)
            if len(self.goals) > 1 or not known:
                return None
            acquisition = self._fitted(data)
            transform = acquisition.posterior.goals[0].transform
            if transform is None or not acquisition.posterior.feasible.any():
                return None
            gain = math.exp(float(acquisition(self.space.encode([params]))[0]))
        return gain * transform.scale * transform.spread

    def belief(self, history: Sequence[Trial]) -> Belief | None:
        """See `Suggester.belief`."""
        from .belief import belief

        return belief(self.space, self.goals, self.constraints, self.seed, history)

    def prospect(
        self, history: Sequence[Trial], pending: Sequence[Trial], params: Params | None
    ) -> Prospect | None:
        """See `Suggester.prospect`; by the knowledge gradient."""
        least = 2 * NUM_DESIGN if params is not None else 2
        if len(self.goals) > 1 or len(history) < least:
            return None
        from .acquisition.knowledge import prospect

        with one_thread():
            data = self._reader(self._reader.legal(history))
            if len(data) < least or not self._surrogates.possible(data):
                return None
            cost = self._cost.term(history) if self._cost is not None else None
            acquisition = self._fitted(data, **({"cost": cost} if cost else {}))
            waiting = self.space.encode([trial.params for trial in self._reader.legal(pending)])
            rng = np.random.default_rng([self.seed, len(history)])
            best = data.unit[self._surrogates.incumbents.best_rows(data)]
            others = [
                self._sampler.everywhere(rng, 200),
                self._sampler.near(rng, best[:3], 100, (0.01, 0.3)),
            ]
            return prospect(
                acquisition.with_pending(waiting),
                data,
                self.space.encode([] if params is None else [params]),
                np.concatenate(others),
            )

    @cached_property
    def _surrogates(self) -> Surrogates:
        from .model.surrogates import Surrogates

        return Surrogates(self.space, self.goals, self.constraints, self.seed, self._policy)

    @cached_property
    def _design(self) -> InitialDesign:
        turns = [params for turn in zip_longest(*self._best_earlier) for params in turn if params]
        rng = np.random.default_rng(self.seed)
        fitted = [self._context.domain.repair(params, rng) for params in turns]
        earlier = self.space.encode([params for params in fitted if params])
        return InitialDesign(self._sampler, earlier, inner=self._policy.inner_design)

    @cached_property
    def _cost(self) -> CostModel | None:
        from .acquisition.cost import CostModel

        budget = self._context.budget
        if not (budget.time or budget.worker_time):
            return None
        return CostModel(self.space, budget, self.seed, self._policy)

    def _acquisition(
        self, data: TrialData, num_pending: int, history: Sequence[Trial]
    ) -> Acquisition | None:
        """The acquisition with all of its terms; None during the initial design."""
        if self._design.goes_on(data, num_pending) or not self._surrogates.possible(data):
            return None
        from .acquisition.user_prior import prior_term

        terms = {
            "cost": self._cost.term(history) if self._cost is not None else None,
            "prior": prior_term(self._prior, len(history)),
        }
        return self._fitted(data, **{name: term for name, term in terms.items() if term})

    def _fitted(self, data: TrialData, **terms: Term) -> Acquisition:
        from .acquisition.acquisition import Acquisition
        from .acquisition.feasibility import Feasibility

        posterior = self._surrogates.fit(data)
        feasibility = Feasibility.after(posterior.failures, data.failed, self._policy)
        return Acquisition(posterior, feasibility, terms, self._policy)

    def _suggest_one(
        self,
        data: TrialData,
        acquisition: Acquisition | None,
        pending: Array,
        taken: set[Hashable],
        rng: np.random.Generator,
    ) -> Params | None:
        """The next configuration: the rules of the policy, in their order of precedence."""
        policy = self._policy
        if acquisition is None:
            return self._designed(data, pending, taken, rng)
        number = len(taken)
        posterior = acquisition.posterior
        smoothed = posterior.smoothed(len(data)) if policy.smoothed_incumbents else None
        best = data.unit[self._surrogates.incumbents.best_rows(data, smoothed)]
        acquisition = acquisition.with_pending(pending)
        stalled = len(data) - self._surrogates.incumbents.last_progress(data, smoothed) >= STALLED
        option = None
        if policy.retry_failed_options:
            option = forced_option(self._sampler, data, pending, number, stalled=stalled)
        if option is not None:
            found = self._forced(option, data, acquisition, best, taken, rng)
            if found is not None:
                return found
        local = policy.local_if_stalled and stalled and number % STALLED_EVERY == 1
        return self._optimizer.maximise(
            acquisition, best, taken, rng, sketch=acquisition.sketch(), local=local
        )

    def _forced(
        self,
        option: tuple[int, float],
        data: TrialData,
        acquisition: Acquisition,
        best: Array,
        taken: set[Hashable],
        rng: np.random.Generator,
    ) -> Params | None:
        """A promising configuration with this option, and few other values of its failures."""
        import torch

        failures = data.unit[rows_with(data.unit, *option)]
        accepting = acquisition.accepting(ACCEPTED)

        def score(unit: Array) -> Tensor:
            shared = torch.from_numpy(self._design.overlap(unit, failures))
            return accepting(unit) - DIFFERENT * shared

        others = best_with_each_option(self._sampler, data, option[0])
        return self._optimizer.changed(score, np.concatenate([best, others]), taken, rng, option)

    def _designed(
        self, data: TrialData, pending: Array, taken: set[Hashable], rng: np.random.Generator
    ) -> Params | None:
        """A configuration of the initial design: it differs from all others, and may succeed."""
        middle = None if taken else self._middle(rng)
        if middle is not None:
            return middle
        failures = self._surrogates.failures(data) if data.failed.any() else None
        pool = self._design.pool(data, pending, failures, rng)
        return self._optimizer.first_new(pool, taken, rng)

    def _middle(self, rng: np.random.Generator) -> Params | None:
        """The first configuration, unless earlier sweeps have one or it is not legal."""
        if not self._policy.middle_first or any(self._best_earlier):
            return None
        return self._sampler.middle(rng)
