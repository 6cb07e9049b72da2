"""Ax's default strategy (Olson et al., "Ax: a platform for adaptive experimentation", 2025)."""

import logging
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from automl.core import Trial
from search_spaces import Choice, Float, Int, Parameter
from workers.protocol import Params, Value

from ._new_points import repair
from ._peers import PeerObservation, observations, seeded_globally, silenced
from .base import Suggester
from .sobol import SobolSuggester

INITIAL = 5
MIN_SUCCESSES = 2
_LOG = logging.getLogger(__name__)


class AxSuggester(Suggester):
    """The centre, then Sobol points, then Ax's modular BoTorch generator.

    The generator begins after five trials of which two have succeeded. The experiment is rebuilt
    from the history for each suggestion. Conditional spaces are flattened: an inactive parameter
    has its default or middle. Failed trials have the worst loss seen, because Ax learns nothing
    from failed ones. Pending trials are running. A proposal is repaired if it breaks a constraint
    of the space (Ax takes linear ones only) or was tried before.
    """

    name = "ax"
    package = "ax"

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        observed = observations(history, self.goals, self.constraints)
        num_known = len(history) + len(pending)
        if num_known < INITIAL or sum(not item.failed for item in observed) < MIN_SUCCESSES:
            return self._initial(history, pending, count)
        seed = int(np.random.SeedSequence([self.seed, num_known]).generate_state(1)[0] % 2**31)
        with silenced("ax", logging.CRITICAL), seeded_globally(seed):
            _disable_compilation()
            proposals = self._generate(history, observed, pending, count, seed)
        found: list[Params] = []
        seen, rng = self.trial_keys(history, pending), np.random.default_rng(seed)
        for i in range(count):
            wanted = proposals[i] if i < len(proposals) else None
            params = repair(self.space, wanted, rng, seen)
            if params is None:
                break
            found.append(params)
            seen.add(self.space.key(params))
        return found

    def _initial(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int
    ) -> list[Params]:
        found: list[Params] = []
        if not history and not pending:
            (centre,) = self.space.decode(np.full((1, len(self.space.parameters)), 0.5))
            first = repair(self.space, centre, np.random.default_rng(self.seed), set())
            found = [] if first is None else [first]
        known = [Trial(-1, params) for params in found]
        sobol = SobolSuggester(self.space, self.goals, self.constraints, seed=self.seed)
        return found + sobol.suggest(history, [*pending, *known], count - len(found))

    def _generate(
        self,
        history: Sequence[Trial],
        observed: Sequence[PeerObservation],
        pending: Sequence[Trial],
        count: int,
        seed: int,
    ) -> list[Params]:
        """Ax's proposals without inactive parameters; none if it gives up."""
        tuned = [p for p in self.space.parameters.values() if p.size != 1]
        if not tuned:
            return []
        try:
            client = self._client([_config(p) for p in tuned], seed)
            for trial, item in zip(history, observed, strict=True):
                index = client.attach_trial(_to_ax(tuned, trial.params))
                client.complete_trial(index, raw_data=_data(item))
            for trial in pending:
                client.attach_trial(_to_ax(tuned, trial.params))
            found = client.get_next_trials(max_trials=count).values()
        except Exception as error:  # of Ax, BoTorch, GPyTorch or linear_operator
            _LOG.warning("ax could not suggest, a random configuration is used: %s", error)
            return []
        middles = {name: p.middle() for name, p in self.space.parameters.items()}
        return [
            self.space.strip(middles | {p.name: _value_from_ax(p, values[p.name]) for p in tuned})
            for values in found
        ]

    def _client(self, parameters: list[Any], seed: int) -> Any:
        from ax import Client

        client = Client(random_seed=seed)
        client.configure_experiment(parameters=parameters)
        bounds = [f"bound_{i} <= 0" for i in range(len(self.constraints))]
        goals = ", ".join(f"-loss_{i}" for i in range(len(self.goals)))
        client.configure_optimization(objective=goals, outcome_constraints=bounds)
        client.configure_generation_strategy(
            method="fast", initialization_budget=0, initialize_with_center=False, torch_device="cpu"
        )
        return client


def _to_ax(tuned: Sequence[Parameter], params: Params) -> dict[str, Any]:
    return {p.name: _value_to_ax(p, params.get(p.name, p.middle())) for p in tuned}


def _config(parameter: Parameter) -> Any:
    """A float is given by its place in the unit interval, so that any scale and width works."""
    from ax import ChoiceParameterConfig, RangeParameterConfig

    if isinstance(parameter, Choice):
        indices = [str(i) for i in range(len(parameter.choices))]
        if parameter.ordered:
            return ChoiceParameterConfig(
                parameter.name, list(range(len(indices))), "int", is_ordered=True
            )
        return ChoiceParameterConfig(parameter.name, indices, "str", is_ordered=False)
    if _stepped(parameter):
        return RangeParameterConfig(parameter.name, (0, cast(int, parameter.size) - 1), "int")
    if isinstance(parameter, Int):
        return RangeParameterConfig(
            parameter.name,
            (parameter.low, parameter.high),
            "int",
            scaling="log" if parameter.log else "linear",
        )
    return RangeParameterConfig(parameter.name, (0.0, 1.0), "float")


def _stepped(parameter: Parameter) -> bool:
    """Whether values are given by their index, in steps from the lowest."""
    return isinstance(parameter, Float | Int) and parameter.step not in (None, 1)


def _value_to_ax(parameter: Parameter, value: Value) -> Any:
    if isinstance(parameter, Choice):
        index = parameter.index(value)
        return index if parameter.ordered else str(index)
    if _stepped(parameter):
        return int(parameter.to_unit(value) * cast(int, parameter.size))
    return int(cast(int, value)) if isinstance(parameter, Int) else float(parameter.to_unit(value))


def _value_from_ax(parameter: Parameter, value: Any) -> Value:
    if isinstance(parameter, Choice):
        return parameter.choices[int(cast(int, value))]
    if _stepped(parameter):
        return parameter.from_unit((int(cast(int, value)) + 0.5) / cast(int, parameter.size))
    number = cast(float, value)
    return int(number) if isinstance(parameter, Int) else parameter.from_unit(number)


def _data(observed: PeerObservation) -> dict[str, float]:
    return {
        **{f"loss_{i}": value for i, value in enumerate(observed.losses)},
        **{f"bound_{i}": value for i, value in enumerate(observed.violations)},
    }


def _disable_compilation() -> None:
    """Keep BoTorch from compiling C++ at run time: a killed compilation blocks all later ones."""
    from botorch.acquisition.multi_objective import logei

    if hasattr(logei, "_load_attempted"):
        logei._load_attempted = True
