"""`LightGBMCallback`: reports each round of LightGBM, and stops between rounds."""

from typing import Any

from lightgbm import Booster
from lightgbm.callback import CallbackEnv, EarlyStopException

from .training import BoostingCallback, replacing


class LightGBMCallback(BoostingCallback):
    """Reports the metrics of `valid_sets` after each round, and stops the training on request.

    A metric is named after its data set: "valid_0-binary_logloss". The step is the number of rounds
    (trees) so far. It serves `lightgbm.train`, `lightgbm.cv` (which reports means, and cannot be
    resumed) and the estimators such as `LGBMClassifier`.

    Args:
        trial: of the objective.
        save_every: rounds between two copies of the model in `trial.checkpoint_dir`; None: only at
            a pause.

    Example:
        >>> def objective(trial):
        ...     callback = LightGBMCallback(trial)
        ...     lightgbm.train(
        ...         dict(trial.params), data, callback.rounds_left(200), callbacks=[callback],
        ...         valid_sets=[validation], init_model=callback.model,
        ...     )
    """

    order = 25  # LightGBM logs (10) and records (20) before, and stops early (30) after

    def __call__(self, env: CallbackEnv) -> None:
        """Report the newest values.

        Raises:
            EarlyStopException: LightGBM's own, if the training should end.
        """
        step = env.iteration + 1
        found = env.evaluation_result_list or []
        metrics = {f"{data}-{metric}": value for data, metric, value, *_ in found}
        if not self._after_round(env.model, step, metrics, last=step >= env.end_iteration):
            raise EarlyStopException(env.iteration, found)

    def _checkpoint(self, model: Any, step: int) -> None:
        if isinstance(model, Booster):  # not the models of `lightgbm.cv`
            with replacing(self._trial, step, ".txt") as place:
                model.save_model(place, num_iteration=-1)
