"""Actions about this machine and what is installed on it: workloads, data sets, hardware."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .action import Action, Argument
from .arguments import JSON, STORE
from .headings import PREPARE

MACHINE: Final = (
    Action(
        "workloads",
        PREPARE,
        "List the workloads, or fetch a data set.",
        """List the workloads with their goals, and the data sets that --fetch can get.

        A data set is fetched from its official source. Its checksum is checked, and a transfer
        that was broken off goes on.""",
        ("automl workloads", "automl workloads --fetch imdb data/imdb"),
        (
            Argument("fetch", help="Data set to fetch.", flag="--fetch", metavar="NAME"),
            Argument("folder", "path", metavar="[DIR]"),
            JSON,
        ),
        "automl.cli.machine.workloads",
    ),
    Action(
        "doctor",
        PREPARE,
        "Show what this machine can run.",
        "Show hardware, packages and backends, and what precisions and strategies need.",
        ("automl doctor",),
        (replace(STORE, help="Store to check for writing."), JSON),
        "automl.cli.machine.doctor",
    ),
)
