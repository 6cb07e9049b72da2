"""Workloads: one file or folder per workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.plugins import Registry

if TYPE_CHECKING:
    from workers.workload import Workload

WORKLOADS: Registry[Workload] = Registry(
    "workload", "workers.workloads", "automl.workloads", "workers.workload:Workload", separator="_"
)
