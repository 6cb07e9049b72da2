"""Dispatchers: `local`, `ray`, `inline` (this process), `agents` (elsewhere), `simulated`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.plugins import Registry

if TYPE_CHECKING:
    from .base import Dispatcher

DISPATCHERS: Registry[Dispatcher] = Registry(
    "dispatcher",
    "automl.dispatch",
    "automl.dispatchers",
    "automl.dispatch.base:Dispatcher",
    others=("gpus",),
)
