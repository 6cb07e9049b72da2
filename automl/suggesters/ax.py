"""Ax's default strategy (Olson et al., "Ax: a platform for adaptive experimentation", 2025)."""

import logging
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from automl.core import Trial
from search_spaces import Choice, Parameter
from workers.protocol import Params, Value

from ._optuna import observations, silenced
from .base import Suggester
from .bayes.data import Array
from .bayes.suggester import one_thread
from .domain import repair
from .sobol import SobolSuggester

INITIAL = 5
MIN_SUCCESSES = 2


class AxSuggester(Suggester):
    """Sobol points, then Ax's modular BoTorch generator.

    The generator begins after five trials of which two have succeeded. The experiment is rebuilt
    from the history for each suggestion. Numbers are given by their place in the unit interval,
    choices by their index. Conditional spaces are flattened: an inactive parameter has its default
    or middle. Failed trials have the worst loss seen, because Ax learns nothing from failed ones.
    Pending trials are running. A proposal is repaired if it breaks a constraint of the space (Ax
    takes linear ones only) or was tried before.
    """

    name = "ax"
    package = "ax"

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        *observed, failed = observations(history, self.goals, self.constraints)
        num_known = len(history) + len(pending)
        if num_known < INITIAL or (~failed).sum() < MIN_SUCCESSES:
            sobol = SobolSuggester(self.space, self.goals, self.constraints, seed=self.seed)
            return sobol.suggest(history, pending, count)
        seed = int(np.random.SeedSequence([self.seed, num_known]).generate_state(1)[0] % 2**31)
        wanted = self._generate(history, observed, pending, count, seed)
        found: list[Params] = []
        seen, rng = self.trial_keys(history, pending), np.random.default_rng(seed)
        for proposal in wanted:
            params = repair(self.space, proposal, rng, seen)
            if params is None:
                break
            found.append(params)
            seen.add(self.space.key(params))
        return found

    def _generate(
        self,
        history: Sequence[Trial],
        observed: Sequence[Array],
        pending: Sequence[Trial],
        count: int,
        seed: int,
    ) -> list[Params | None]:
        """Ax's proposals without inactive parameters, and None for those that it does not make."""
        from botorch.utils.sampling import manual_seed

        tuned = [p for p in self.space.parameters.values() if p.size != 1]
        if not tuned:
            return [None] * count
        middles = {name: p.middle() for name, p in self.space.parameters.items()}

        def flat(params: Params) -> dict[str, Any]:
            whole = {**middles, **params}
            return {p.name: _to_ax(p, whole[p.name]) for p in tuned}

        state = random.getstate()
        with silenced("ax", logging.CRITICAL), manual_seed(seed), one_thread():
            random.seed(seed)
            client = self._client([_config(p) for p in tuned], seed)
            for trial, losses, excess in zip(history, *observed, strict=True):
                data = {f"loss_{i}": float(value) for i, value in enumerate(losses)}
                data |= {f"bound_{i}": float(value) for i, value in enumerate(excess)}
                client.complete_trial(client.attach_trial(flat(trial.params)), raw_data=data)
            for trial in pending:
                client.attach_trial(flat(trial.params))
            made = client.get_next_trials(max_trials=count).values()
        random.setstate(state)
        found = [
            self.space.strip(middles | {p.name: _from_ax(p, values[p.name]) for p in tuned})
            for values in made
        ]
        return [*found, *[None] * (count - len(found))]

    def _client(self, parameters: list[Any], seed: int) -> Any:
        from ax import Client
        from botorch.acquisition.multi_objective import logei

        logei._load_attempted = True  # a compilation that is killed would block all later ones
        client = Client(random_seed=seed)
        client.configure_experiment(parameters=parameters)
        bounds = [f"bound_{i} <= 0" for i in range(len(self.constraints))]
        goals = ", ".join(f"-loss_{i}" for i in range(len(self.goals)))
        client.configure_optimization(objective=goals, outcome_constraints=bounds)
        client.configure_generation_strategy(
            method="fast", initialization_budget=0, initialize_with_center=False, torch_device="cpu"
        )
        return client


def _config(parameter: Parameter) -> Any:
    from ax import ChoiceParameterConfig, RangeParameterConfig

    if not isinstance(parameter, Choice):
        return RangeParameterConfig(parameter.name, (0.0, 1.0), "float")
    indices = list(range(len(parameter.choices)))
    return ChoiceParameterConfig(parameter.name, indices, "int", is_ordered=parameter.ordered)


def _to_ax(parameter: Parameter, value: Value) -> Any:
    return (
        parameter.index(value) if isinstance(parameter, Choice) else float(parameter.to_unit(value))
    )


def _from_ax(parameter: Parameter, value: Any) -> Value:
    return (
        parameter.choices[int(value)]
        if isinstance(parameter, Choice)
        else parameter.from_unit(float(value))
    )
