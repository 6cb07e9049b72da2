"""Dispatchers: `local`, `ray`, `inline` (this process), `agents` (elsewhere), `simulated`."""

from search_spaces.plugins import Registry

from .base import Dispatcher
from .inline import AgentsDispatcher

DISPATCHERS: Registry[Dispatcher] = Registry(
    "dispatcher",
    "automl.dispatch",
    "automl.dispatchers",
    "automl.dispatch.base:Dispatcher",
    others=("gpus",),
    rows={"agents": AgentsDispatcher},
)
