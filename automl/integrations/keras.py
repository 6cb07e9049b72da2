"""`KerasCallback`: reports, stops, checkpoints and resumes a training of Keras."""

from typing import Any

from keras.callbacks import BackupAndRestore, Callback

from .training import newest, replacing, report


class KerasCallback(Callback):  # type: ignore[misc]
    """Reports the logs of `model.fit` after each epoch, and stops it on request.

    The step is the number of epochs. If an earlier attempt has left a checkpoint, `fit` goes on
    from there by itself: it begins with the weights, the state of the optimizer and the number of
    the next epoch.

    Args:
        trial: of the objective.
        save: keep a checkpoint in `trial.checkpoint_dir` after each epoch. The model must be built.

    Example:
        >>> def objective(trial):
        ...     model = build(trial.params["width"])
        ...     model.fit(x, y, epochs=20, validation_split=0.2, callbacks=[KerasCallback(trial)])
    """

    def __init__(self, trial: Any, *, save: bool = True) -> None:
        super().__init__()
        self._trial = trial
        self._save = save

    def on_train_begin(self, logs: Any = None) -> None:
        """Go on from the checkpoint of an earlier attempt."""
        if self._save and (found := newest(self._trial)):
            self._backup(found).on_train_begin()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save, report, and stop if that is asked for."""
        step = epoch + 1
        if self._save:
            with replacing(self._trial, step) as folder:
                self._backup(folder).on_epoch_end(epoch)
        last = self.model.stop_training or step >= self.params["epochs"]
        if not report(self._trial, step, logs or {}, last=last):
            self.model.stop_training = True

    def _backup(self, folder: Any) -> BackupAndRestore:
        """Keras' own way to save and restore a training, in a folder of one epoch."""
        backup = BackupAndRestore(str(folder), delete_checkpoint=False)
        backup.set_model(self.model)
        return backup
