"""What a sweep is: everything that a controller needs, as the ledger keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from search_spaces import Space
from workers.protocol import Metric

from .goals import Constraint, Goal
from .metrics import declared


@dataclass(frozen=True)
class Budget:
    """When a sweep ends; reaching any of them ends it.

    Args:
        trials: every trial counts, trial 0 and failures too.
        time: wall-clock seconds of the sweep over all of its runs.
        worker_time: seconds summed over slots.
        target: a value of the first goal that is good enough.
        gain: of the goal, in its unit: a sweep ends when another trial is expected to gain less (under `bayes`).
    """

    trials: int | None = None
    time: float | None = None
    worker_time: float | None = None
    target: float | None = None
    gain: float | None = None


@dataclass(frozen=True)
class Resources:
    """What one worker slot has: CPU cores (threads a rank), GPUs (a fraction where one is shared), and the bytes of
    memory that a rank may use, None for the device's.
    """

    cpus: int = 1
    gpus: float = 0.0
    memory: int | None = None


@dataclass(frozen=True)
class SweepSpec:
    """One search, named.

    Args:
        name: of the sweep.
        space: what is tuned.
        goals: at least one.
        workload: its name; None for an objective of the user's own.
        data, fixed: sections of the configuration, for the workload.
        workers: number of slots; None for as many as the machine has room for.
        max_retries: attempts after the first that a trial gets when the configuration was not to blame.
        max_steps: the last step of a trial where that is known, for stoppers.
        timeout: seconds without any step or report after which an attempt counts as hung; None for a quarter of an
            hour of a workload, and for ever of an objective of the user's own.
        disk_bytes: of all checkpoints of the sweep together; None for half of what is free.
        beliefs: about good values, by parameter (`suggesters.bayes.acquisition.user_prior`).
        metrics: declared by the workload, or by the user for an objective of the user's own.
        last_report_counts: whether a goal takes a trial's final metrics instead of its best report (the workload's).
    """

    name: str
    space: Space
    goals: tuple[Goal, ...]
    constraints: tuple[Constraint, ...] = ()
    workload: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    suggester: str = "bayes"
    stopper: str = "none"
    workers: int | None = None
    resources: Resources = field(default_factory=Resources)
    seed: int = 0
    max_retries: int = 2
    max_steps: int | None = None
    timeout: float | None = None
    disk_bytes: int | None = None
    last_report_counts: bool = False
    beliefs: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()

    def __post_init__(self) -> None:
        for name in ("goals", "constraints"):
            known = (
                replace(one, declared=declared(one.metric, self.metrics))
                for one in getattr(self, name)
            )
            object.__setattr__(self, name, tuple(known))

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {
            "name": self.name,
            "space": self.space.to_dict(),
            "goals": [str(goal) for goal in self.goals],
            "constraints": [str(constraint) for constraint in self.constraints],
            "workload": self.workload,
            "data": dict(self.data),
            "fixed": dict(self.fixed),
            "budget": vars(self.budget),
            "suggester": self.suggester,
            "stopper": self.stopper,
            "workers": self.workers,
            "resources": vars(self.resources),
            "seed": self.seed,
            "max_retries": self.max_retries,
            "timeout": self.timeout,
            "max_steps": self.max_steps,
            "disk_bytes": self.disk_bytes,
            "last_report_counts": self.last_report_counts,
            "beliefs": dict(self.beliefs),
            "metrics": [vars(metric) for metric in self.metrics],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SweepSpec:
        """The inverse of `to_dict`."""
        parsed = {
            "space": Space.from_dict(data["space"]),
            "goals": tuple(Goal.parse(text) for text in data["goals"]),
            "constraints": tuple(Constraint.parse(text) for text in data["constraints"]),
            "budget": Budget(**data["budget"]),
            "resources": Resources(**data["resources"]),
            "metrics": tuple(Metric(**one) for one in data.get("metrics", ())),
        }
        return cls(**{**data, **parsed})
