"""What can be done with sweeps: one table, from which the verbs and the MCP tools derive."""

from collections.abc import Mapping
from typing import Final

from .action import Action
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
