"""Actions about this machine and what is installed on it: workloads, data sets, hardware."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .action import Action, Argument
from .arguments import JSON, STORE
from .headings import PREPARE


def _path(name: str, help: str, flag: str = "", *, required: bool = False) -> Argument:
    return Argument(name, "path", help, flag or f"--{name.replace('_', '-')}", required=required)


MACHINE: Final = (
    Action(
        "workloads",
        PREPARE,
        "List the workloads.",
        "List the workloads with their goals.",
        ("automl workloads",),
        (JSON,),
        "automl.cli.machine.workloads",
    ),
    Action(
        "data",
        PREPARE,
        "List, fetch and prepare data sets.",
        "List, fetch and prepare data sets.",
        ("automl data list", "automl data fetch imdb"),
    ),
    Action(
        "data list",
        PREPARE,
        "List the data sets that can be fetched.",
        "List the data sets that can be fetched, and the settings to use them.",
        ("automl data list --json",),
        (JSON,),
        "automl.cli.machine.list_data",
    ),
    Action(
        "data fetch",
        PREPARE,
        "Fetch a data set from its official source.",
        "Fetch a data set from its official source, check its checksum, resume broken transfers.",
        (
            "automl data fetch imdb",
            "automl sweep configs/sentiment.yaml data.name=imdb data.dir=data/imdb",
        ),
        (
            Argument("name", metavar="NAME", required=True),
            _path("folder", "Folder to write.  [default: data/NAME]", "--dir"),
            JSON,
        ),
        "automl.cli.machine.fetch_data",
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
