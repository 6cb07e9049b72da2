"""`XGBoostCallback`: reports each round of XGBoost, and stops between rounds."""

from pathlib import Path
from typing import Any

from xgboost.callback import TrainingCallback

from .training import BoostingCallback, replacing


class XGBoostCallback(BoostingCallback, TrainingCallback):  # type: ignore[misc]
    """Reports the metrics of `evals` after each round, and stops the training on request.

    A metric is named after its data set: "validation-logloss". The step is the number of rounds
    (trees) so far. It serves `xgboost.train`, `xgboost.cv` (which reports means, and cannot be
    resumed) and the estimators such as `XGBClassifier`.

    Args:
        trial: of the objective.
        save_every: rounds between two copies of the model in `trial.checkpoint_dir`; None: only at
            a pause.

    Example:
        >>> def objective(trial):
        ...     callback = XGBoostCallback(trial)
        ...     xgboost.train(
        ...         dict(trial.params), data, callback.rounds_left(200), callbacks=[callback],
        ...         evals=[(validation, "validation")], xgb_model=callback.model,
        ...     )
    """

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Report the newest values; returns whether the training should end."""
        step = model.num_boosted_rounds()
        metrics = {
            f"{data}-{metric}": _mean(values[-1])
            for data, metrics in evals_log.items()
            for metric, values in metrics.items()
        }
        return not self._after_round(model, step, metrics)

    def _checkpoint(self, model: Any, step: int) -> None:
        if hasattr(model, "save_model"):  # the models of `xgboost.cv` cannot be continued
            with replacing(self._trial, step, ".ubj") as place:
                model.save_model(Path(place))


def _mean(value: Any) -> float:
    """A value, or the mean of (mean, standard deviation)."""
    return float(value[0] if isinstance(value, tuple) else value)
