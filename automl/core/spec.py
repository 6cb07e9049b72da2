"""The specification of a sweep: everything that a controller needs. The ledger stores it.

Each setting is declared here once, with its `Key`: the keys of a configuration, flags, keyword
arguments and the reference page derive from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Final

from automl.errors import UsageError
from search_spaces import Choice, Float, Space
from search_spaces.plugins import nearest
from workers.artifacts import read_location
from workers.protocol import Metric

from . import arguments
from .arguments import WrongValue, check_name, shown
from .goals import Constraint, Goal, declared
from .key_kinds import (
    DURATION,
    FLAG,
    MAPPING,
    TEXT,
    Key,
    Kind,
    PluginChoice,
    key,
    keys_of,
    listed,
    mapped,
    one_of,
    whole,
)
from .resources import BUDGET, RESOURCES, WORKERS, Budget, Resources, WorkerRange, read_workers


def _space(name: str, value: Any) -> dict[str, Any] | None:
    if value == "auto" or (isinstance(value, dict) and value):
        return None if value == "auto" else value
    raise WrongValue(name, "auto, or a mapping of parameters to what may be tried,", value)


def _artifacts(name: str, value: Any) -> str:
    return "" if value == "" else read_location(arguments.location(name, value, of="bucket"))


def _prior(name: str, value: Any) -> Any:
    return value if isinstance(value, Mapping) else arguments.text(name, value)


def _command(name: str, value: Any) -> tuple[str, ...]:
    """The words of a command; a number is the text that it is written as."""
    words = list(value) if isinstance(value, list | tuple) else []
    if words and all(isinstance(word, str | int | float) for word in words):
        return tuple(word if isinstance(word, str) else json.dumps(word) for word in words)
    raise WrongValue(name, "a list of words, such as [python, train.py, '{params}'],", value)


def _replicates(name: str, value: Any) -> str | int:
    if value in ("auto", "none"):
        return str(value)
    try:
        return arguments.whole(name, value, least=1, most=MAX_REPLICATES)
    except WrongValue:
        rule = f"'auto', 'none', or a whole number from 1 to {MAX_REPLICATES}"
        raise WrongValue(name, rule, value) from None


MAX_REPLICATES: Final = 1000
DISPATCHERS: Final = ("auto", "ray", "local", "inline", "agents")
PLUGIN: Final = Kind("name, or a mapping of name and options", lambda _, value: value)
REPLICATES: Final = Kind("`auto`, `none`, or a whole number", _replicates)
COMMAND: Final = Kind("list of words", _command)
RANKS: Final = Kind(
    "whole number, or the name of a parameter",
    lambda name, value: value if isinstance(value, str) else whole(1).read(name, value),
)


@dataclass(frozen=True)
class Origin:
    """What a sweep runs, and where: a ledger keeps it, and whoever goes on with it is careful.

    Args:
        command: what the trials run, as it was typed, to be shown; "" if they run no command.
        objective: FILE:NAME of the function that the configuration names; "" if it names none.
        signed: the signature (`automl.cli.common.signature`) of the user whose configuration names
            the command or the objective; "" if it was typed. Without it, neither is run from here:
            whoever runs the sweep types it again.
        folder: in which it was started; a command means something else in another one. "" if that
            is not known.
        dispatcher: that ran the sweep last; "" if it is not known.
        code: digests of what its trials run, by name (`workflows.objective.digests`).
        artifacts_folder: the sweep's own folder in `artifacts`.
        received: whether the spec was read from a ledger, which may be a stranger's: a run uses its
            location only if the call names it again (`with_location`).
    """

    command: str = ""
    objective: str = ""
    signed: str = ""
    folder: str = ""
    dispatcher: str = ""
    code: Mapping[str, str] = field(default_factory=dict)
    artifacts_folder: str = ""
    received: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Knowledge:
    """What was known before the first trial.

    Args:
        prior: densities of parameters, from what the key `prior` says of their values.
        learns: words of that key: "like:SWEEP" for an earlier sweep.
        earlier: trials of the sweeps that `learns` names, by sweep, as they were when this sweep
            began: `params`, and `losses` by metric.
    """

    prior: Mapping[str, Any] = field(default_factory=dict)
    learns: tuple[str, ...] = ()
    earlier: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """The earlier sweeps, in words; "" for none."""
        return ", ".join(f"{len(e['params'])} trials of {name}" for name, e in self.earlier.items())


@dataclass(frozen=True)
class SpaceHistory:
    """How the space has come about.

    Args:
        explored: what earlier trials may have, if the space has changed: the space and the earlier
            spaces together (`search_spaces.change`).
        asked: the line that first asked for each parameter, if the objective declares the space
            while it runs (`trial.suggest_float`); None if the space was declared before.
    """

    explored: Space | None = None
    asked: Mapping[str, str] | None = None


@dataclass(frozen=True)
class SweepSpec:
    """The specification of one sweep. A field with a `key` says itself what it means.

    Args:
        metrics: declared by the workload, or by the user for their objective.
        paired: whether trials 0 and 1 have the same seed, as do 2 and 3, and so on.
    """

    name: str = key(
        Kind("text", lambda _, value: check_name(value)),
        "Name of the sweep: 1 to 64 letters, digits, `_`, `.` or `-`. "
        "If it is in use, `-2` is added.",
        "name: nmt",
        words="the file's name",
        flag="--name NAME",
    )
    space: Space = key(
        Kind("mapping, or `auto`", _space),
        "What is tuned. A value is a list of choices, a range, or `auto` for a parameter or a knob "
        "of the workload. `space: auto` tunes all that the workload declares. "
        "See [parameters](#parameters).",
        "space:\n  learning_rate: {low: 1e-4, high: 1e-2, log: true}\n  precision: [fp32, bf16]\n"
        "  attention_layout: auto",
        words="all that the workload declares",
    )
    goals: tuple[Goal, ...] = key(
        listed(Kind("goal", lambda _, value: Goal.parse(value))),
        "What is optimised: `minimize METRIC` or `maximize METRIC`, then `at the end`, "
        "`within 10m` or nothing. See [several goals](../guides/goals.md).",
        "goals: [maximize bleu within 10m, minimize seconds]",
        flag="--goals GOAL",
        words="the workload's",
    )
    constraints: tuple[Constraint, ...] = key(
        listed(TEXT),
        "Bounds on metrics, and conditions on parameters. "
        "See [constraints](../guides/goals.md#constraints).",
        "constraints: [peak_memory_bytes <= 8e9, num_layers * width <= 512]",
        (),
    )
    workload: str | None = key(
        TEXT,
        "The workload to train (`automl workloads`). Leave it out for a function or a command.",
        "workload: translation",
        None,
    )
    data: Mapping[str, Any] = key(
        MAPPING,
        "The data set of the workload: its `name`, and settings such as `dir`.",
        "data: {name: multi30k, dir: data/multi30k}",
        dict,
        "the workload's built-in data",
    )
    fixed: Mapping[str, Any] = key(
        MAPPING, "Options of the workload that are not tuned.", "fixed: {max_epochs: 5}", dict
    )
    budget: Budget = key(
        BUDGET,
        "When the sweep ends: at the first of these.",
        "budget: {trials: 50, time: 2h}",
        Budget,
    )
    suggester: PluginChoice[Any] = key(
        PLUGIN,
        "Proposes configurations: `bayes`, `ax`, `tpe`, `optuna-gp`, `sobol`, `random`, or "
        "[your own](../guides/plugins.md).",
        "suggester: tpe",
        "bayes",
    )
    stopper: PluginChoice[Any] = key(
        PLUGIN,
        "Ends or pauses poor trials: `none`, `asha`, `hyperband`, `median`, `curve`. "
        "See [early stopping](../guides/early-stopping.md) and [options](#options-of-stoppers).",
        "stopper: {name: asha, grace: 5, factor: 3}",
        "none",
    )
    workers: WorkerRange | None = key(
        WORKERS,
        "Number of slots: how many trials of one rank run at once. On a Ray cluster also a "
        "[range](../guides/ray.md#workers-that-come-and-go).",
        "workers: 4",
        None,
        "as many as there is room for",
        "--workers N",
    )
    resources: Resources = key(
        RESOURCES,
        "What a slot has. See [GPUs and memory](../guides/gpus.md).",
        "resources: {cpus: 4, gpus: 1, memory: 16GB}",
        Resources,
    )
    seed: int = key(whole(0), "Seed of everything random.", "seed: 7", 0, flag="--seed N")
    max_retries: int = key(
        whole(0),
        "How often a trial runs again if its configuration did not cause its failure.",
        "max_retries: 5",
        2,
    )
    max_steps: int | None = key(
        whole(1),
        "The last step of a trial, if it is known; stoppers use it.",
        "max_steps: 100",
        None,
    )
    resumable: bool = key(
        FLAG,
        "Whether your function or command goes on from a checkpoint of its own, so that a stopper "
        "may pause it.",
        "resumable: true",
        False,
        "true for a command, and for a function that calls `trial.restore`",
    )
    ranks: int | str = key(
        RANKS,
        "Processes of a trial of your own function or command, one slot each. "
        "See [ranks](../guides/gpus.md#several-ranks).",
        "ranks: 4",
        1,
    )
    timeout: float | None = key(
        DURATION,
        "A trial that shows no sign of life for so long fails as `timeout`.",
        "timeout: 30m",
        None,
        "15 minutes for a workload, else none",
    )
    metrics: tuple[Metric, ...] = ()
    trackers: tuple[str, ...] = key(
        listed(TEXT),
        "Tools that the sweep is written to while it runs. "
        "See [other tools](../guides/studio.md#other-tools).",
        "trackers: [mlflow, tensorboard]",
        (),
    )
    reports: Mapping[str, str] = key(
        mapped(TEXT),
        "How a command prints its metrics: a regular expression of RE2 for each, with one group; "
        "`file` is a CSV of metrics. See "
        "[reports](../guides/script.md#reports).",
        "reports: {loss: 'val_loss (\\S+)', step: 'epoch (\\d+)'}",
        dict,
    )
    cwd: str = key(
        one_of("here", "trial"),
        "Where a command runs: where `automl` was typed, or in a folder of its trial. "
        "See [files](../guides/script.md#files).",
        "cwd: trial",
        "here",
    )
    replicates: str | int = key(
        REPLICATES,
        "Whether configurations run again, each time with another seed. `auto`: in the last fifth "
        "of the budget `bayes` runs the best again and, if runs differ, others that may be the "
        "best. A number: each configuration runs so many times. "
        "See [noise](../guides/noise.md#repeated-runs).",
        "replicates: none",
        "auto",
        flag="--replicates N",
    )
    artifacts: str = key(
        Kind("text", _artifacts),
        "Folder or URL that every node reaches, such as s3://bucket/prefix, for the files of "
        "trials; `none` for the store. See "
        "[artifacts](../guides/ray.md#checkpoints-where-every-machine-finds-them).",
        "artifacts: s3://bucket/sweeps",
        "",
        "in the store",
        "--artifacts URL",
    )
    paired: bool = False
    origin: Origin = field(default_factory=Origin)
    knowledge: Knowledge = field(default_factory=Knowledge)
    history: SpaceHistory = field(default_factory=SpaceHistory)

    def __post_init__(self) -> None:
        own, plugins = self.workload is None, {name: getattr(self, name) for name in _PLUGINS}
        goals = (replace(one, returned=own and one.within is None) for one in self.goals)
        read = {
            **{n: PluginChoice(one) if isinstance(one, str) else one for n, one in plugins.items()},
            "goals": self._declared(goals),
            "constraints": self._declared(self.constraints),
            "workers": read_workers(self.workers),
        }
        for name, value in read.items():
            object.__setattr__(self, name, value)

    def _declared(self, measured: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(replace(m, declared=declared(m.metric, self.metrics)) for m in measured)

    def with_location(self, artifacts: str) -> SweepSpec:
        """The spec with the location of artifacts that the caller names; "" for the store."""
        return replace(self, artifacts=artifacts, origin=replace(self.origin, received=False))

    def completed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A trial's parameters, with the defaults of those that are new since it was proposed."""
        return dict(self.known_space.complete(params) if self.history.explored else params)

    @property
    def asked_ranges(self) -> dict[str, Any] | None:
        """The ranges that trials have asked for; None if the space was declared."""
        if self.history.asked is None:
            return None
        known, asked = self.space.parameters, self.history.asked
        return {n: {**known[n].to_dict(), "line": line} for n, line in asked.items()}

    @property
    def known_space(self) -> Space:
        """The space of every trial, also of those from before a change of the space."""
        return self.history.explored or self.space

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain JSON data, without levels for its parts; the ledger stores it."""
        data: dict[str, Any] = _plain(self)
        for name in _PLUGINS:
            data[name], data[f"{name}_options"] = data[name].values()
        for name in _PARTS:
            data |= data.pop(name)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SweepSpec:
        """The inverse of `to_dict`; the spec counts as received."""
        flat: dict[str, Any] = {
            **data,
            "space": Space.from_dict(data["space"]),
            "goals": tuple(Goal.parse(text) for text in data["goals"]),
            "constraints": tuple(Constraint.parse(text) for text in data["constraints"]),
            "budget": Budget(**data["budget"]),
            "resources": Resources(**data["resources"]),
            "metrics": tuple(Metric(**one) for one in data["metrics"]),
            "trackers": tuple(data["trackers"]),
            "learns": tuple(data["learns"]),
            "code": dict(data["code"]),
            "explored": Space.from_dict(data["explored"]) if data["explored"] else None,
            "received": True,
        }
        for name in _PLUGINS:
            flat[name] = PluginChoice(flat[name], flat.pop(f"{name}_options"))
        parts = {
            name: part(**{one.name: flat.pop(one.name) for one in fields(part)})
            for name, part in _PARTS.items()
        }
        return cls(**flat, **parts)


_PLUGINS: Final = ("suggester", "stopper")
_PARTS: Final = {"origin": Origin, "knowledge": Knowledge, "history": SpaceHistory}


def _plain(value: Any) -> Any:
    """A field of the spec as JSON data."""
    if isinstance(value, Space):
        return value.to_dict()
    if isinstance(value, Goal | Constraint):
        return str(value)
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value) if one.compare}
    if isinstance(value, tuple):
        return list(map(_plain, value))
    return dict(value) if isinstance(value, Mapping) else value


# The settings of a configuration: those of the spec, and of where and with what a sweep begins.
KEYS: Final = {
    **keys_of(SweepSpec),
    "objective": Key(
        TEXT,
        "Your function to tune, as FILE:NAME; `resume` runs it again. "
        "See [a function](../guides/function.md).",
        "objective: train.py:objective",
        "",
        "none",
    ),
    "command": Key(
        COMMAND,
        "Your program to tune, as `automl sweep` takes it after `--`; `resume` runs it again. "
        "See [a script](../guides/script.md).",
        "command: [python, train.py, '--lr={lr}']",
        (),
        "none",
    ),
    "dispatcher": Key(
        one_of(*DISPATCHERS),
        "Where trials run: on Ray, in processes of this machine, in the process of the sweep, or "
        "only by agents (`automl ask`). `auto` is `ray` if a cluster is named, else `local`.",
        "dispatcher: ray",
        "auto",
        flag="--dispatcher NAME",
    ),
    "ray_address": Key(
        TEXT,
        "Address of a Ray cluster to use; `auto` finds one.",
        "ray_address: auto",
        None,
        "none",
        "--ray-address ADDR",
    ),
    "store": Key(
        Kind("text", arguments.location),
        "Folder or database URL of the sweeps. See "
        "[PostgreSQL](../guides/ray.md#a-teams-postgresql).",
        "store: postgresql://automl@db.example/automl",
        ".automl",
        flag="--store URL",
    ),
    "prior": Key(
        listed(Kind("values by parameter, or a source of finished trials", _prior)),
        "What is known before: good values by parameter, for `bayes`; finished trials to begin "
        "with: `FILE.csv`, `optuna:URL#STUDY`, `sweep:NAME`; `like:NAME` for an earlier sweep on "
        "other data, hardware or sizes. "
        "See [prior knowledge](../guides/prior-knowledge.md).",
        "prior: [{learning_rate: {at: 2e-3, spread: 0.1}}, old.csv, like:last-week]",
        (),
    ),
}


def ranks_of(ranks: int | str, params: Mapping[str, Any]) -> int:
    """The ranks of a configuration; 1 if the parameter that says how many is not active."""
    return int(params.get(ranks, 1)) if isinstance(ranks, str) else ranks


def max_ranks(spec: SweepSpec) -> int:
    """The most ranks that a trial may have.

    Raises:
        UsageError: `ranks` names no parameter whose values are whole numbers of at least 1, or the
            sweep runs a workload, whose ranks are options of its own.
    """
    ranks = RANKS.read("ranks", spec.ranks)
    if spec.workload is not None and ranks != 1:
        raise UsageError(
            f"ranks of a sweep are for your own objective, and this one runs the workload "
            f"{spec.workload!r}: put `ranks` in its space or under `fixed`"
        )
    if not isinstance(ranks, str):
        return int(ranks)
    parameter = spec.known_space.parameters.get(ranks)
    if parameter is None:
        known = nearest(ranks, sorted(spec.known_space.parameters))
        raise UsageError(f"ranks must be a number or a parameter, got {ranks!r}; {known}")
    values: list[Any] = [] if isinstance(parameter, Float) else list(parameter.values())
    wrong = [value for value in values if type(value) is not int or value < 1]
    if not values or wrong:
        got = shown(wrong[0]) if wrong else repr(parameter)
        raise UsageError(
            f"parameter {ranks!r} is the number of ranks: its values must be whole numbers of at "
            f"least 1, got {got}"
        )
    return int(max(values))


def follow_strategy(spec: SweepSpec, slots: int) -> tuple[SweepSpec, str]:
    """The spec with as many ranks as the strategies of its space can use.

    If a function's or a command's space has the knob `parallelism` and the user says no ranks, the
    parameter `ranks` is added: powers of two within the slots.

    Args:
        slots: of the sweep.

    Returns:
        The spec, and a line for a person about strategies that have no room; "" for none.

    Raises:
        UsageError: no strategy has room.
    """
    from search_spaces.knobs.parallelism import PARALLELISM
    from search_spaces.knobs.parallelism import RANKS as RANKS_OPTION
    from workers.parallel import STRATEGIES

    strategy = spec.space.parameters.get(PARALLELISM.name)
    if not isinstance(strategy, Choice) or not {*strategy.choices} <= {*STRATEGIES.names()}:
        return spec, ""
    several = [name for name in strategy.choices if name != PARALLELISM.unset]
    if spec.workload is not None or spec.ranks != 1 or not several:
        return spec, ""
    parameters, ranks, line = dict(spec.space.parameters), RANKS_OPTION.name, ""
    if ranks in parameters:
        return replace(spec, ranks=ranks), ""
    if slots > 1:
        counts = [2**power for power in range(1, slots.bit_length())]
        parameters[ranks] = Choice(
            ranks,
            counts,
            ordered=True,
            default=counts[0],
            affects=set(RANKS_OPTION.affects),
            when={PARALLELISM.name: several},
        )
    elif PARALLELISM.unset in strategy.choices:
        alone = Choice(strategy.name, [PARALLELISM.unset], affects=set(strategy.affects))
        parameters[strategy.name] = alone
        names = ", ".join(map(str, several))
        line = f"parallelism: {names} left out, they need 2 slots and there is 1"
    else:
        raise UsageError(f"parallelism {several[0]} needs 2 slots, there is 1: ask for workers=2")
    space = Space(*parameters.values(), constraints=spec.space.constraints)
    return replace(spec, space=space, ranks=ranks if slots > 1 else 1), line


def check_room(spec: SweepSpec, slots: int) -> None:
    """Raise UsageError if a trial may have more ranks than there are slots."""
    if (most := max_ranks(spec)) > slots and spec.workload is None:
        what = f"parameter {spec.ranks!r} can be" if isinstance(spec.ranks, str) else "ranks is"
        raise UsageError(
            f"each rank of a trial takes a slot: {what} {most}, and there are {slots} slots. "
            f"Ask for fewer ranks, or for workers={most}"
        )
