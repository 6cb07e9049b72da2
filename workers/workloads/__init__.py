"""Workloads: one file or folder per workload."""

from search_spaces.plugins import Registry
from workers.workload import Workload

WORKLOADS: Registry[Workload] = Registry(
    "workload", "workers.workloads", "automl.workloads", "workers.workload:Workload", separator="_"
)
