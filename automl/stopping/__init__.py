"""Stopping rules, one a file: `none` is the default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.plugins import Registry

if TYPE_CHECKING:
    from .base import Stopper

STOPPERS: Registry[Stopper] = Registry(
    "stopper", "automl.stopping", "automl.stoppers", "automl.stopping.base:Stopper"
)
