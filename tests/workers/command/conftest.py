"""Attempts of a command in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workers.command.command import CommandObjective
from workers.context import Context
from workers.protocol import Assignment, Limits, Outcome, Report, StopRequest
from workers.run import run


class CommandRunner:
    """Runs attempts of one trial; `reports` holds what the last one sent."""

    def __init__(self, folder: Path) -> None:
        self.trial = folder / "trial"
        self.reports: list[Report] = []
        self.attempt = 0
        self.device = "cpu"
        self.on_report: Callable[[Report], object] = lambda report: None
        self.request: StopRequest | None = None
        self.context: Context | None = None  # of the attempt

    def __call__(
        self,
        *arguments: str,
        params: dict[str, Any] | None = None,
        limits: Limits | None = None,
        **options: Any,
    ) -> Outcome:
        self.attempt += 1
        self.reports = []
        assignment = Assignment(
            "s",
            3,
            self.attempt,
            params or {},
            None,
            str(self.trial),
            resume=self.attempt > 1,
            seed=7,
            limits=limits or Limits(),
        )
        context = self.context = Context(
            assignment, self._take, lambda: self.request, device=self.device
        )
        return run(context, CommandObjective(arguments, **options))

    def python(self, code: str, *arguments: str, **options: Any) -> Outcome:
        """Run a Python program of these lines."""
        script = self.trial.parent / "script.py"
        script.write_text(f"import json, os, sys, time\n{code}")
        return self(sys.executable, "-S", str(script), *arguments, **options)

    @property
    def log(self) -> str:
        """The newest log of the trial."""
        return (self.trial / "logs" / f"attempt-{self.attempt}-rank-0.log").read_text()

    def _take(self, report: Report) -> None:
        self.reports.append(report)
        self.on_report(report)


@pytest.fixture
def command(tmp_path: Path) -> CommandRunner:
    return CommandRunner(tmp_path)
