"""Assignments of the toy workload, run in this process or as a gang."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import objective

from workers.context import Context
from workers.protocol import Assignment, Limits, Outcome, Report
from workers.run import run
from workers.runtime.processes import run_gang


class TrialRunner:
    """Runs attempts of one trial; `reports` holds what the last one sent."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.reports, self.attempt = folder, [], 0
        self.objective: Callable[[Context], Any] = objective

    def assignment(
        self,
        *,
        ranks: int = 1,
        torchrun: bool = False,
        resume: bool = False,
        limits: Limits | None = None,
        **params: Any,
    ):
        self.attempt += 1
        return Assignment(
            sweep="s",
            trial=3,
            attempt=self.attempt,
            params=params,
            workload=None,
            folder=str(self.folder),
            num_ranks=ranks,
            torchrun=torchrun,
            resume=resume,
            seed=7,
            limits=limits or Limits(),
        )

    def __call__(
        self,
        objective: Callable[[Context], Any] | None = None,
        *,
        stop_requested: Callable[[], Any] = lambda: None,
        **settings: Any,
    ) -> Outcome:
        self.objective = objective or self.objective
        assignment = self.assignment(**settings)
        self.reports: list[Report] = []
        if assignment.num_ranks > 1:
            return run_gang(assignment, self.reports.append, stop_requested, self.objective)
        return run(Context(assignment, self.reports.append, stop_requested), self.objective)

    def losses(self) -> dict[int, float]:
        """Training loss by update; needs evaluate_updates=1."""
        return {r.step: r.metrics["train_loss"] for r in self.reports if "train_loss" in r.metrics}


@pytest.fixture
def runner(tmp_path: Path) -> TrialRunner:
    return TrialRunner(tmp_path)


@pytest.fixture(autouse=True)
def _same_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
