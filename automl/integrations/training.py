"""What the callbacks of training libraries share: reports, and the newest checkpoint of a trial."""

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from workers.protocol import StopRequest

_NAME: Final = re.compile(r"step-(\d+)")


def report(trial: Any, step: int, metrics: Mapping[str, Any], *, last: bool = False) -> bool:
    """Report metrics at a step; returns whether the training should go on.

    Args:
        trial: of the objective.
        last: the training ends here by itself, so a request to stop comes too late.
    """
    goes_on = bool(trial.report(step=step, **{k: v for k, v in metrics.items() if k != "step"}))
    if last and not goes_on:
        trial.stop = None
    return goes_on or last


class BoostingCallback(ABC):
    """What the callbacks of XGBoost and LightGBM share; a step is a round.

    Args:
        trial: of the objective.
        save_every: rounds between two copies of the model in `trial.checkpoint_dir`; None: only at
            a pause.
    """

    def __init__(self, trial: Any, *, save_every: int | None = None) -> None:
        super().__init__()
        self._trial = trial
        self._save_every = save_every

    @property
    def model(self) -> str | None:
        """The model of an earlier attempt, for the library to go on from; None for none."""
        return newest_name(self._trial)

    def rounds_left(self, rounds: int) -> int:
        """How many of this many rounds earlier attempts have not boosted."""
        return max(0, rounds - step_of(newest(self._trial)))

    def _after_round(
        self, model: Any, step: int, metrics: Mapping[str, Any], *, last: bool = False
    ) -> bool:
        """Save and report if that is due; returns whether the training goes on."""
        saves = self._save_every is not None and step % self._save_every == 0
        if saves:
            self._checkpoint(model, step)
        goes_on = report(self._trial, step, metrics, last=last)
        if not goes_on and not saves and not is_over(self._trial):
            self._checkpoint(model, step)
        return goes_on

    @abstractmethod
    def _checkpoint(self, model: Any, step: int) -> None:
        """Keep the model of a step."""


def is_over(trial: Any) -> bool:
    """Whether a trial was asked to stop for good, so that it needs no checkpoint."""
    return trial.stop is StopRequest.STOP


def newest(trial: Any) -> Path | None:
    """The newest checkpoint that `replacing` has kept in an earlier attempt; None for none."""
    kept = _kept(trial.checkpoint_dir) if trial.resumed else {}
    return kept[max(kept)] if kept else None


def newest_name(trial: Any) -> str | None:
    """The path of the newest checkpoint as text; None for none."""
    found = newest(trial)
    return str(found) if found else None


def step_of(checkpoint: Path | None) -> int:
    """The step of a checkpoint; 0 for none."""
    found = _NAME.match(checkpoint.name) if checkpoint else None
    return int(found[1]) if found else 0


@contextmanager
def replacing(trial: Any, step: int, suffix: str = "") -> Iterator[Path]:
    """A path for the checkpoint of a step, a file or a folder, which then replaces earlier ones.

    It gets its name when it is whole, so a process that is killed meanwhile leaves the earlier one.

    Args:
        suffix: of the file, such as ".ckpt".
    """
    folder = trial.checkpoint_dir
    place = folder / f"saving{suffix}"
    _remove(place)
    yield place
    kept = _kept(folder)
    if step in kept:
        _remove(kept.pop(step))
    place.rename(folder / f"step-{step}{suffix}")
    for earlier in kept.values():
        _remove(earlier)


def _kept(folder: Path) -> dict[int, Path]:
    return {step_of(path): path for path in folder.iterdir() if _NAME.match(path.name)}


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
