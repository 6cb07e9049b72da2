"""Trackers write a sweep to another tool while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.plugins import Registry

if TYPE_CHECKING:
    from .base import Tracker

TRACKERS: Registry[Tracker] = Registry(
    "tracker",
    "automl.trackers",
    "automl.trackers",
    "automl.trackers.base:Tracker",
    others=("ray_metrics",),
)
