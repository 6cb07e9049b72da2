"""The default: no trial is stopped early."""

from collections.abc import Sequence

from automl.core import Trial

from .base import CONTINUE, Decision, Stopper


class NoStopper(Stopper):
    """Lets every trial run to its end."""

    name = "none"

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        return CONTINUE
