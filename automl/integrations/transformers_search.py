"""A backend for `Trainer.hyperparameter_search` of Hugging Face."""

from typing import Any

from transformers.hyperparameter_search import (
    ALL_HYPERPARAMETER_SEARCH_BACKENDS,
    HyperParamSearchBackendBase,
)
from transformers.trainer_utils import BestRun, HPSearchBackend

import automl
from automl.errors import UsageError

from .transformers import TransformersCallback, checkpoint


def register_backend() -> None:
    """Let `Trainer.hyperparameter_search` know `backend="automl"`.

    Its `hp_space` returns a space, and its further keywords are those of `automl.sweep`.

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
        space, output_dir = trainer.hp_space(None), trainer.args.output_dir
        trainer.hp_search_backend = HPSearchBackend.OPTUNA  # `_Parameters` pass for its trial
        trainer.hp_space = lambda parameters: parameters

        def objective(trial: Any) -> dict[str, float]:
            callback = TransformersCallback(trial, trainer.compute_objective)
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

        given = {"dispatcher": "inline", "resumable": True, **options}
        result = automl.sweep(objective, space, f"{direction} objective", trials=n_trials, **given)
        best = result.best
        return BestRun(str(best.number), best.value, dict(best.params), result)


class _Parameters(dict[str, Any]):
    """The parameters of a trial, by name, which `model_init` gets; and its number."""

    def __init__(self, items: Any, number: int = 0) -> None:  # the trainer copies them as a dict
        super().__init__(items)
        self.number = number

    @property
    def params(self) -> "_Parameters":
        """Themselves."""
        return self
