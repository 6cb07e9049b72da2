"""`TransformersCallback`: reports, stops and resumes a `Trainer` of Hugging Face."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import distributed
from transformers import TrainerCallback

from .training import is_over, report


def _samples(args: Any, state: Any) -> int:
    batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    return int(state.global_step * batch)


UNITS: Final[Mapping[str, Callable[[Any, Any], int]]] = {
    "samples": _samples,
    "epochs": lambda args, state: round(state.epoch),
    "updates": lambda args, state: int(state.global_step),
}


class TransformersCallback(TrainerCallback):  # type: ignore[misc]
    """Reports each evaluation of a `Trainer`, and stops it on request.

    The metrics have the names of the trainer ("eval_loss"). The step is the number of samples that
    were trained on, so that a stopper compares trials of different batch sizes fairly. Without
    evaluations, each log of the trainer is reported. Before a pause the trainer saves a checkpoint.
    With `output_dir=trial.checkpoint_dir`, a later attempt goes on from there:
    `trainer.train(resume_from_checkpoint=checkpoint(trial.checkpoint_dir))`.

    Args:
        trial: of the objective.
        steps: what a step is: "samples", "epochs" (rounded) or "updates" of the optimizer.
    """

    def __init__(
        self,
        trial: Any,
        *,
        steps: str = "samples",
    ) -> None:
        self._trial = trial
        self._step_of = UNITS[steps]

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, float], **_: Any
    ) -> None:
        """Report, and ask for a checkpoint and the end if the trial should stop."""
        self._report(args, state, control, metrics)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **_: Any
    ) -> None:
        """Report if there are no evaluations."""
        if args.eval_strategy == "no" and "loss" in logs:
            self._report(args, state, control, logs)

    def _report(self, args: Any, state: Any, control: Any, metrics: Mapping[str, float]) -> None:
        last = control.should_training_stop or state.global_step >= state.max_steps
        goes_on = report(self._trial, self._step_of(args, state), metrics, last=last)
        if not _all_go_on(goes_on, args.device):
            control.should_training_stop = True
            control.should_save = not is_over(self._trial)


def checkpoint(folder: str | Path) -> str | None:
    """The newest whole checkpoint of a `Trainer` with this `output_dir`; None for none.

    It is for `resume_from_checkpoint` of `Trainer.train`.
    """
    # `trainer_state.json` is what the trainer writes last.
    found = [path.parent for path in Path(folder).glob("checkpoint-*/trainer_state.json")]
    return str(max(found, key=lambda path: int(path.name.rpartition("-")[2]), default="")) or None


def _all_go_on(goes_on: bool, device: torch.device) -> bool:
    """Whether every rank goes on, so that all stop at the same step."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return goes_on
    vote = torch.tensor(int(goes_on), device=device)
    distributed.all_reduce(vote, distributed.ReduceOp.MIN)
    return bool(vote.item())
