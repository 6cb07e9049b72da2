"""What can be done with sweeps: one table, from which every face of the program derives."""

from collections.abc import Mapping
from typing import Final

from .action import Action, Operation
from .agents import AGENTS
from .care import CARE
from .comparing import COMPARING
from .headings import HEADINGS
from .jobs import JOBS
from .looking import LOOKING
from .machine import MACHINE
from .running import RUNNING
from .steering import STEERING

# By verb, in the order of the help text.
ACTIONS: Final[Mapping[str, Action]] = {
    action.name: action
    for heading in HEADINGS
    for action in (*RUNNING, *COMPARING, *JOBS, *MACHINE, *LOOKING, *STEERING, *AGENTS, *CARE)
    if action.heading == heading
}

# Operations of the HTTP API, with their actions.
OPERATIONS: Final[Mapping[str, tuple[Action, Operation]]] = {
    operation.name: (action, operation)
    for action in ACTIONS.values()
    for operation in action.operations
}
