"""A backend for `Trainer.hyperparameter_search` of Hugging Face."""

from collections.abc import Callable, Sequence
from typing import Any

from transformers.hyperparameter_search import (
    ALL_HYPERPARAMETER_SEARCH_BACKENDS,
    HyperParamSearchBackendBase,
)
from transformers.trainer_utils import BestRun, HPSearchBackend

import automl
from automl.errors import UsageError
from search_spaces import Choice, Float, Int, Space
from search_spaces.parameters import Parameter

from .transformers import TransformersCallback, checkpoint


def register_backend() -> None:
    """Let `Trainer.hyperparameter_search` know `backend="automl"`.

    Its `hp_space` returns a space, or suggests values as for Optuna. Its further keywords are those
    of `automl.sweep`, and `steps` of `TransformersCallback`.

    Example:
        >>> register_backend()
        >>> trainer.hyperparameter_search(
        ...     hp_space=lambda _: {"learning_rate": {"low": 1e-6, "high": 1e-3, "log": True}},
        ...     backend="automl", n_trials=20, stopper="asha",
        ... )
    """
    name = SearchBackend.name
    member = str.__new__(HPSearchBackend, name)  # the library has no way to add one
    member._name_, member._value_ = name.upper(), name
    HPSearchBackend._value2member_map_[name] = member
    ALL_HYPERPARAMETER_SEARCH_BACKENDS[member] = SearchBackend


class SearchBackend(HyperParamSearchBackendBase):  # type: ignore[misc]
    """Runs a sweep with the trainer itself, one trial at a time in this process."""

    name = "automl"

    @staticmethod
    def is_available() -> bool:
        """It is."""
        return True

    def default_hp_space(self, trial: Any) -> dict[str, Any]:
        """The parameters that the other backends tune by default."""
        return {
            "learning_rate": {"low": 1e-6, "high": 1e-4, "log": True},
            "per_device_train_batch_size": [4, 8, 16, 32, 64],
        }

    def run(self, trainer: Any, n_trials: int, direction: Any, **options: Any) -> BestRun:
        """Run the sweep; returns its best trial, with the `Result` as `run_summary`."""
        if not isinstance(direction, str):
            raise UsageError("the backend automl has one objective, got several directions")
        space, output_dir = space_of(trainer.hp_space), trainer.args.output_dir
        steps = options.pop("steps", "samples")
        trainer.hp_search_backend = HPSearchBackend.OPTUNA  # `_Parameters` pass for its trial
        trainer.hp_space = lambda parameters: parameters

        def objective(trial: Any) -> dict[str, float]:
            callback = TransformersCallback(trial, trainer.compute_objective, steps=steps)
            trainer.add_callback(callback)
            trainer.args.output_dir = str(trial.checkpoint_dir)
            trainer.objective = None  # the trainer sets it at each evaluation
            try:
                parameters = _Parameters(trial.params, trial.number)
                trainer.train(checkpoint(trainer._get_output_dir(parameters)), parameters)
            finally:
                trainer.remove_callback(callback)
                trainer.args.output_dir = output_dir
            if trainer.objective is not None:
                return {}
            return {"objective": trainer.compute_objective(trainer.evaluate())}

        given = {"dispatcher": "inline", **options}
        result = automl.sweep(objective, space, f"{direction} objective", trials=n_trials, **given)
        best = result.best
        return BestRun(str(best.number), best.value, dict(best.params), result)


def space_of(hp_space: Callable[[Any], Any]) -> Any:
    """The space that a function returns, or that it asks an Optuna trial for.

    Raises:
        UsageError: which values it asks for depends on the answers.
    """
    first, last = _AskedSpace(0), _AskedSpace(-1)
    returned = hp_space(first)
    if not first.parameters:
        return returned
    hp_space(last)
    if set(first.parameters) != set(last.parameters):
        only = set(first.parameters) ^ set(last.parameters)
        raise UsageError(
            f"hp_space suggests {', '.join(sorted(only))} only for some values of others: return a "
            "space with `when` instead"
        )
    return Space(*first.parameters.values())


class _AskedSpace:
    """Stands for a trial of Optuna, and notes what is asked of it.

    Args:
        place: 0 to answer with the lowest value or the first choice, -1 for the other end.
    """

    number = 0

    def __init__(self, place: int) -> None:
        self.parameters: dict[str, Parameter] = {}
        self._place = place

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A real number."""
        self.parameters[name] = Float(name, low, high, step=step, log=log)
        return (low, high)[self._place]

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """A whole number."""
        self.parameters[name] = Int(name, low, high, step=step, log=log)
        return (low, high)[self._place]

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of several values."""
        self.parameters[name] = Choice(name, list(choices))
        return choices[self._place]


class _Parameters(dict[str, Any]):
    """The parameters of a trial, by name, which `model_init` gets; and its number."""

    def __init__(self, items: Any, number: int = 0) -> None:  # the trainer copies them as a dict
        super().__init__(items)
        self.number = number

    @property
    def params(self) -> "_Parameters":
        """Themselves."""
        return self
