"""No workers of its own: every trial is run by an agent elsewhere (`automl ask`)."""

from typing import ClassVar

from automl.core.resources import WorkerRange

from .inline import InlineDispatcher


class AgentsDispatcher(InlineDispatcher):
    """Has no slots. The controller serves agents between two calls of `poll`."""

    name = "agents"
    patience = 0.1
    serial: ClassVar[bool] = False
    estimates: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(num_slots=0)

    def scale(self, workers: WorkerRange) -> None:
        """Do nothing: the sweep has this many workers once a controller runs it."""
