"""`LightningCallback`: reports, stops, checkpoints and resumes a training of Lightning."""

from typing import Any

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    from pytorch_lightning import Callback

from .training import newest_name, replacing, report


class LightningCallback(Callback):  # type: ignore[misc]
    """Reports the metrics of a `Trainer` after each epoch, and stops it on request.

    The metrics are those that the module has logged, by their names. The step is the number of
    epochs. If validations do not come once an epoch, it reports after each validation, and the step
    is the number of updates. What a module logs in its own `on_train_epoch_end` is in the next
    report.

    With several ranks, every rank needs the callback: all stop together.

    Args:
        trial: of the objective.
        save: keep a checkpoint in `trial.checkpoint_dir` at each report, so that a later attempt
            can go on: `trainer.fit(model, ckpt_path=callback.checkpoint)`.

    Example:
        >>> def objective(trial):
        ...     callback = LightningCallback(trial)
        ...     trainer = Trainer(max_epochs=20, callbacks=[callback], logger=False)
        ...     trainer.fit(Model(trial.params["lr"]), data, ckpt_path=callback.checkpoint)
    """

    def __init__(self, trial: Any, *, save: bool = True) -> None:
        self._trial = trial
        self._save = save

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint of an earlier attempt, for `ckpt_path` of `fit`; None for none."""
        return newest_name(self._trial)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report, unless reports come after validations."""
        if _once_an_epoch(trainer):
            self._report(trainer, trainer.current_epoch + 1)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report, unless reports come after epochs."""
        fits = trainer.state.fn == "fit" and not trainer.sanity_checking
        if fits and not _once_an_epoch(trainer):
            self._report(trainer, trainer.global_step)

    def _report(self, trainer: Any, step: int) -> None:
        if self._save:
            self._checkpoint(trainer, step)  # first: a reported epoch is never trained again
        last = trainer.should_stop or _is_last(trainer)
        goes_on = report(self._trial, step, trainer.callback_metrics, last=last)
        if trainer.strategy.reduce_boolean_decision(not goes_on, all=False):
            trainer.should_stop = True

    def _checkpoint(self, trainer: Any, step: int) -> None:
        """Save on every rank, as Lightning needs it; rank 0 gives the file its name."""
        if trainer.is_global_zero:
            with replacing(self._trial, step, ".ckpt") as place:
                trainer.save_checkpoint(place)
        else:
            trainer.save_checkpoint(self._trial.checkpoint_dir / "saving.ckpt")


def _once_an_epoch(trainer: Any) -> bool:
    """Whether every epoch ends with its only validation, or there is none."""
    if not any(trainer.num_val_batches):
        return True
    return bool(trainer.check_val_every_n_epoch == 1 and trainer.val_check_interval == 1.0)


def _is_last(trainer: Any) -> bool:
    """Whether the training ends by itself after this report."""
    epochs = trainer.max_epochs
    ends = epochs not in (None, -1) and trainer.current_epoch + 1 >= epochs
    steps = trainer.max_steps
    return bool(
        (ends and _once_an_epoch(trainer)) or (steps != -1 and trainer.global_step >= steps)
    )
