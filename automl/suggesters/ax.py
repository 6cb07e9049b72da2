"""Ax's default strategy (Olson et al., "Ax: a platform for adaptive experimentation", AutoML 2025)."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from automl.core.trial import Trial
from search_spaces import Choice, Int
from search_spaces.parameters import Parameter
from workers.protocol import Params, Value

from ._draws import keys, new_points, repair
from ._isolate import isolated
from ._observations import tell
from .base import Suggester
from .sobol import SobolSuggester

INITIAL = 5
MIN_SUCCESSES = 2
_LOG = logging.getLogger(__name__)


class AxSuggester(Suggester):
    """The centre, Sobol points until five trials (two of them successful), then Ax's modular BoTorch generator.

    The experiment is rebuilt from the history for each suggestion. Conditional spaces are flattened: an inactive
    parameter is told as its default or middle. Failed trials are told as the worst loss seen, because Ax learns nothing
    from a trial that it knows as failed; pending ones are running. A proposal that breaks a constraint of the space
    (Ax takes linear ones only) or was tried before is repaired.
    """

    name = "ax"

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        """See `Suggester.suggest`; a configuration that was tried before is not proposed again."""
        seen = keys(self.space, history, pending)
        told = tell(history, self.goals, self.constraints)
        seed = int(
            np.random.SeedSequence([self.seed, len(history) + len(pending)]).generate_state(1)[0]
            % 2**31
        )
        if (
            len(history) + len(pending) < INITIAL
            or sum(not item.failed for item in told) < MIN_SUCCESSES
        ):
            return self._initial(history, pending, count)
        with _quiet(), isolated(seed):
            _compile_nothing()
            proposals = self._generate(history, pending, count, seed)
        return self._finish(proposals, seen, count, np.random.default_rng(seed))

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
        return (
            found + sobol.suggest(history, [*pending, *known], count - len(found))
            if count > len(found)
            else found
        )

    def _generate(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int, seed: int
    ) -> list[Params]:
        """Ax's proposals, stripped of what is inactive; none where it gives up."""
        parameters = [_config(p) for p in self.space.parameters.values() if not _fixed(p)]
        if not parameters:
            return []
        try:
            client = self._client(parameters, seed)
            for trial, item in zip(
                history, tell(history, self.goals, self.constraints), strict=True
            ):
                index = client.attach_trial(self._outward(trial.params))
                client.complete_trial(index, raw_data=_data(item.losses, item.excesses))
            for trial in pending:
                client.attach_trial(self._outward(trial.params))
            return [
                self._inward(found) for found in client.get_next_trials(max_trials=count).values()
            ]
        except (
            Exception
        ) as error:  # Ax raises errors of its own and of BoTorch, GPyTorch and linear_operator
            _LOG.warning("ax could not suggest (%s): a random configuration instead", error)
            return []

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

    def _outward(self, params: Params) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for name, parameter in self.space.parameters.items():
            if not _fixed(parameter):
                told[name] = _tell_value(parameter, params.get(name, parameter.middle()))
        return told

    def _inward(self, found: dict[str, Any]) -> Params:
        params = {
            name: parameter.middle() if _fixed(parameter) else _read_value(parameter, found[name])
            for name, parameter in self.space.parameters.items()
        }
        return self.space.strip(params)

    def _finish(
        self, proposals: list[Params], seen: set[Hashable], count: int, rng: np.random.Generator
    ) -> list[Params]:
        found: list[Params] = []
        for i in range(count):
            params = repair(self.space, proposals[i], rng, seen) if i < len(proposals) else None
            params = params or next(iter(new_points(self.space, rng, seen, 1)), None)
            if params is None:
                break
            found.append(params)
            seen.add(self.space.key(params))
        return found


def _fixed(parameter: Parameter) -> bool:
    return parameter.size == 1


def _config(parameter: Parameter) -> Any:
    """Floats are told by their place in the unit interval, so that any scale and width is accepted."""
    from ax import ChoiceParameterConfig, RangeParameterConfig

    if isinstance(parameter, Choice):
        indices = [str(i) for i in range(len(parameter.choices))]
        if parameter.ordered:
            return ChoiceParameterConfig(
                parameter.name, list(range(len(indices))), "int", is_ordered=True
            )
        return ChoiceParameterConfig(parameter.name, indices, "str", is_ordered=False)
    if isinstance(parameter, Int):
        scaling = "log" if parameter.log else "linear"
        return RangeParameterConfig(
            parameter.name, (parameter.low, parameter.high), "int", scaling=scaling
        )
    return RangeParameterConfig(parameter.name, (0.0, 1.0), "float")


def _tell_value(parameter: Parameter, value: Value) -> Any:
    if isinstance(parameter, Choice):
        index = next(
            i for i, c in enumerate(parameter.choices) if c == value and type(c) is type(value)
        )
        return index if parameter.ordered else str(index)
    return int(value) if isinstance(parameter, Int) else float(parameter.to_unit(value))


def _read_value(parameter: Parameter, value: Any) -> Value:
    if isinstance(parameter, Choice):
        return parameter.choices[int(value)]
    return int(value) if isinstance(parameter, Int) else parameter.from_unit(float(value))


def _data(losses: Sequence[float], excesses: Sequence[float]) -> dict[str, float]:
    return {
        **{f"loss_{i}": value for i, value in enumerate(losses)},
        **{f"bound_{i}": value for i, value in enumerate(excesses)},
    }


def _compile_nothing() -> None:
    """Keep BoTorch from compiling a C++ kernel at run time: a compilation that was killed blocks every later one."""
    from botorch.acquisition.multi_objective import logei

    if hasattr(logei, "_load_attempted"):
        logei._load_attempted = True


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ax's own messages are not the user's."""
    logger = logging.getLogger("ax")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
