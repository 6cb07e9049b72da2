"""Makes the assignment that a worker gets for an attempt at a trial."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from automl.core import SweepSpec, Trial
from automl.core.spec import ranks_of
from automl.dispatch.base import GangShape
from automl.errors import UsageError
from workers.artifacts.copies import SweepArtifacts
from workers.files.folder import Folder
from workers.protocol import Assignment, Limits

TIMEOUT_SECONDS: Final = 900.0  # of a workload, if the spec sets no time-out


@dataclass(frozen=True)
class Assigner:
    """Makes assignments for the trials of a sweep.

    Args:
        spec: of the sweep.
        files: its folder.
        artifacts: of the sweep; None if its trials keep their files in its folder.
    """

    spec: SweepSpec
    files: Folder
    artifacts: SweepArtifacts | None = None

    def slots(self, params: Mapping[str, Any]) -> int:
        """How many slots a configuration takes: one per rank."""
        if self.spec.workload is None:
            return ranks_of(self.spec.ranks, params)
        from workers.parallel import num_ranks

        return num_ranks(params, self.spec.fixed)

    def shape(self, params: Mapping[str, Any]) -> GangShape:
        """The slots of a configuration, and how many of them must be on one node."""
        if self.spec.workload is None:
            return GangShape(self.slots(params))
        from workers.parallel import ranks_together

        try:
            together = ranks_together(params, self.spec.fixed)
        except UsageError:
            together = 1  # the trial fails, and says why
        return GangShape(self.slots(params), together)

    def assignment(self, trial: Trial, asked: Mapping[str, Any] | None = None) -> Assignment:
        """The assignment of the trial's current attempt; its worker checks the folder.

        Args:
            asked: the ranges that trials have asked for; None if the space was declared.
        """
        spec = self.spec
        within = [goal.within for goal in spec.goals if goal.within is not None]
        resume = trial.attempts > 1
        goes_on = spec.workload is not None or spec.resumable
        trained = trial.reports[-1].seconds if resume and trial.reports and goes_on else 0.0
        folder = self.files / "trials" / str(trial.number)
        shape = self.shape(trial.params)
        return Assignment(
            sweep=spec.name,
            trial=trial.number,
            attempt=trial.attempts,
            params=self.spec.completed(trial.params),
            workload=spec.workload,
            folder=str(folder.path),
            store=str(self.files.root),
            data=spec.data,
            fixed=spec.fixed,
            seed=seed_of(spec, trial.number),
            num_ranks=shape.ranks,
            ranks_together=shape.together,
            torchrun=spec.ranks != 1,
            threads=max(1, spec.resources.cpus),
            gpus=spec.resources.gpus,
            resume=resume,
            previous_seconds=trained,
            goals=tuple(goal.metric for goal in spec.goals),
            constrained=tuple(constraint.metric for constraint in spec.constraints),
            artifacts=self.artifacts.trial(trial.number) if self.artifacts else "",
            asked=asked,
            limits=Limits(min(within, default=None), self._timeout(), spec.resources.memory),
        )

    def _timeout(self) -> float | None:
        """Seconds; None for a user objective by default, because it need not report anything."""
        if self.spec.timeout is not None or self.spec.workload is None:
            return self.spec.timeout
        return TIMEOUT_SECONDS


def seed_of(spec: SweepSpec, number: int) -> int:
    """The seed of a trial: the same for each attempt, independent of other sweeps.

    It is independent of other trials too, except of its pair's if the spec is `paired`.
    """
    draw = number // 2 if spec.paired else number
    return int(np.random.SeedSequence([spec.seed % 2**64, draw]).generate_state(1)[0])
