"""The specification of a sweep: everything that a controller needs. The ledger stores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from search_spaces import Space
from workers.protocol import Metric

from .budget import Budget
from .goals import Constraint, Goal
from .metrics import declared
from .resources import Resources
from .worker_range import WorkerRange


@dataclass(frozen=True)
class SweepSpec:
    """The specification of one sweep.

    Args:
        name: of the sweep.
        space: the parameters to tune.
        goals: at least one.
        workload: name of the workload; None if the user gives an objective.
        data, fixed: sections of the configuration, for the workload.
        suggester_options, stopper_options: for their constructors.
        workers: number of slots, or the most of a range; None for as many as there is room for.
        min_workers: the least slots, if they come and go (`worker_range`); None if not.
        max_retries: attempts after the first that a trial gets if its configuration did not
            cause the failure.
        max_steps: the last step of a trial if it is known, for stoppers.
        resumable: the user's objective goes on from its own checkpoint after a pause, so stoppers
            may pause it. (Workloads always can.)
        ranks: processes of a trial of the user's objective, one slot each: a number, or the name of
            a parameter that is the number. (A workload's are options of its own.)
        timeout: an attempt without a step or report for this many seconds counts as hung; None for
            the default of a workload (15 minutes), and for no limit with the user's objective.
        disk_bytes: limit on all checkpoints of the sweep together; None for half of the free disk.
        beliefs: the user's prior on good values, by parameter
            (`suggesters.user_prior`).
        metrics: declared by the workload, or by the user for their objective.
        trackers: names of the tools that the sweep is written to while it runs (`automl.trackers`).
        command: what the trials run, as it was typed, to be shown. It is never run from here:
            whoever runs the sweep types it again. "" if they run no command.
        reports: where a command reports its metrics (`workers.command.CommandObjective`).
        stop_grace: seconds between a request to a command to stop and SIGTERM.
        artifacts: a folder or a URL where checkpoints and exports are kept
            (`workers.artifacts.location`); "" or "none" for the store.
        artifacts_folder: the sweep's own folder there.
        received: whether the spec was read from a ledger, which may be a stranger's: a run uses its
            location only if the call names it again (`with_location`).
        explored: what earlier trials may have, if the space has changed: `space` and the earlier
            spaces together (`search_spaces.change`).
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
    suggester_options: Mapping[str, Any] = field(default_factory=dict)
    stopper: str = "none"
    stopper_options: Mapping[str, Any] = field(default_factory=dict)
    workers: int | None = None
    min_workers: int | None = None
    resources: Resources = field(default_factory=Resources)
    seed: int = 0
    max_retries: int = 2
    max_steps: int | None = None
    resumable: bool = False
    ranks: int | str = 1
    timeout: float | None = None
    disk_bytes: int | None = None
    beliefs: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()
    trackers: tuple[str, ...] = ()
    explored: Space | None = None
    command: str = ""
    reports: Mapping[str, str] = field(default_factory=dict)
    stop_grace: float = 10.0
    artifacts: str = ""
    artifacts_folder: str = ""
    received: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("goals", "constraints"):
            known = (
                replace(one, declared=declared(one.metric, self.metrics))
                for one in getattr(self, name)
            )
            object.__setattr__(self, name, tuple(known))

    @property
    def worker_range(self) -> WorkerRange | None:
        """The least and the most slots; None for as many as there is room for."""
        if self.workers is None:
            return None
        least = self.workers if self.min_workers is None else self.min_workers
        return WorkerRange(least, self.workers)

    def with_workers(self, workers: WorkerRange) -> SweepSpec:
        """The spec with another number of slots."""
        least = workers.min if workers.elastic else None
        return replace(self, workers=workers.max, min_workers=least)

    def with_location(self, artifacts: str) -> SweepSpec:
        """The spec with the location of artifacts that the caller names; "" for the store."""
        return replace(self, artifacts=artifacts, received=False)

    @property
    def known_space(self) -> Space:
        """The space of every trial, also of those from before a change of the space."""
        return self.explored or self.space

    @property
    def trained(self) -> str:
        """What the trials run, in words."""
        return self.workload or ("a command" if self.command else "an objective")

    @property
    def typed_again(self) -> str:
        """What a command line must name again: a ledger keeps nothing that can be run."""
        if self.workload:
            return ""
        return " " + " ".join((self.command or "--objective FILE:NAME").splitlines())

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain JSON data; the ledger stores these keys."""
        explored = {"explored": self.explored.to_dict()} if self.explored else {}
        least = {} if self.min_workers is None else {"min_workers": self.min_workers}
        return {
            **explored,
            **least,
            "name": self.name,
            "space": self.space.to_dict(),
            "goals": [str(goal) for goal in self.goals],
            "constraints": [str(constraint) for constraint in self.constraints],
            "workload": self.workload,
            "data": dict(self.data),
            "fixed": dict(self.fixed),
            "budget": vars(self.budget),
            "suggester": self.suggester,
            "suggester_options": dict(self.suggester_options),
            "stopper": self.stopper,
            "stopper_options": dict(self.stopper_options),
            "workers": self.workers,
            "resources": vars(self.resources),
            "seed": self.seed,
            "max_retries": self.max_retries,
            "timeout": self.timeout,
            "max_steps": self.max_steps,
            "resumable": self.resumable,
            "ranks": self.ranks,
            "disk_bytes": self.disk_bytes,
            "beliefs": dict(self.beliefs),
            "metrics": [vars(metric) for metric in self.metrics],
            "trackers": list(self.trackers),
            "command": self.command,
            "reports": dict(self.reports),
            "stop_grace": self.stop_grace,
            "artifacts": self.artifacts,
            "artifacts_folder": self.artifacts_folder,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SweepSpec:
        """The inverse of `to_dict`; the spec counts as received."""
        data = dict(data)
        goals = [Goal.parse(text) for text in data["goals"]]
        if data.pop("last_report_counts", False):  # as ledgers said it before goals could
            goals = [replace(goal, at_end=True) for goal in goals]
        parsed: dict[str, Any] = {
            "space": Space.from_dict(data["space"]),
            "goals": tuple(goals),
            "constraints": tuple(Constraint.parse(text) for text in data["constraints"]),
            "budget": Budget(**data["budget"]),
            "resources": Resources(**data["resources"]),
            "metrics": tuple(Metric(**one) for one in data.get("metrics", ())),
            "trackers": tuple(data.get("trackers", ())),
        }
        if explored := data.get("explored"):
            parsed["explored"] = Space.from_dict(explored)
        return cls(**{**data, **parsed, "received": True})
