"""Loads a configuration file with overrides: checks everything and returns the spec of a sweep.

An override is what people type as KEY=VALUE: `budget.trials=10`, `space.precision=[fp32,bf16]`. It
changes a configuration, or what may change of a sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from automl.control.beginning import stopper_of
from automl.core import (
    Constraint,
    Goal,
    Knowledge,
    Origin,
    Resources,
    SpaceHistory,
    SweepSpec,
    parse_constraints,
    parse_goals,
)
from automl.core.arguments import check_name
from automl.core.key_kinds import choose
from automl.core.resources import (
    LIMITS,
    WorkerRange,
    local_gpus,
    read_workers,
    slot_resources,
)
from automl.core.spec import KEYS, follow_strategy, max_ranks
from automl.core.text import shell_line
from automl.dispatch._make import choose_dispatcher, local_slots
from automl.errors import DataError, UsageError
from automl.stopping import STOPPERS
from automl.suggesters import SUGGESTERS, user_prior
from automl.suggesters.domain import Limit
from automl.suggesters.user_prior import check_prior, split_prior
from automl.trackers.base import check_trackers
from search_spaces import Choice, Space
from search_spaces.hardware import Hardware, detect
from search_spaces.knobs.base import DroppedValue
from search_spaces.parameters import Parameter
from search_spaces.plugins import nearest
from search_spaces.values import plain, show
from workers.command.arguments import unnamed
from workers.command.reports import CSV_FILE, compile_pattern
from workers.workload import Workload
from workers.workloads import WORKLOADS

from .resolution import ENTRY_KEYS, Resolution, Tunable, split_constraints
from .source import Place, WrittenConfig, plain_scalar, shown

STORE: Final = KEYS["store"].default
_OF_COMMANDS: Final = {
    "reports": "only a command has reports; add it to the line: -- python train.py --lr={lr}",
    "cwd": "only a command runs in the folder of its trial; a function has trial.folder",
}
_ELSEWHERE: Final = ("store", "prior", "dispatcher", "ray_address", "objective", "command")
# The sections whose keys are parameters, with the fields that an entry can have.
_FIELDS: Final[Mapping[str, Collection[str]]] = {
    "space": tuple(ENTRY_KEYS),
    "prior": user_prior.KEYS,
    "fixed": (),
    "reports": (),
}


@dataclass(frozen=True)
class Config:
    """A checked configuration.

    Args:
        spec: of the sweep; store: folder or URL of its ledger.
        dropped: parameters and values that are not tried, with the reason.
        notes: what was chosen by default, each for a person.
        prior: sources of finished trials that the sweep begins with.
        named: the keys that the configuration has.
        dispatcher, ray_address: where it wants trials to run.
    """

    spec: SweepSpec
    store: str = STORE
    dropped: tuple[DroppedValue, ...] = ()
    notes: tuple[str, ...] = ()
    prior: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()
    dispatcher: str = "auto"
    ray_address: str | None = None


@dataclass(frozen=True)
class Override:
    """A value for a dotted key.

    Args:
        key: such as `space.learning_rate.low`.
        value: YAML text; lists and mappings are written as `[...]` and `{...}`.
        label: name of the override in messages.
    """

    key: str
    value: str
    label: str


def load(
    path: str | Path | None,
    overrides: Iterable[str | Override] = (),
    *,
    hardware: Hardware | None = None,
    nodes: Callable[[str], Hardware] | None = None,
    objective: bool | None = False,
    command: str = "",
) -> Config:
    """Read and check a configuration. Creates nothing.

    Args:
        path: of a YAML file; None if the overrides say everything.
        overrides: `KEY=VALUE` texts with dotted keys; later ones win.
        hardware: to run on; None for this machine.
        nodes: finds the hardware of the nodes of a cluster, by its address, for a workload that
            is trained there; None if only this machine counts.
        objective: True if a function of the user is tuned, False if a workload is or what the
            configuration names, None for either.
        command: that is tuned instead, as it was typed; "" if none is.

    Raises:
        ConfigError: the file cannot be read or has errors. The message lists all of them.
    """
    source = WrittenConfig("sweep") if path is None else WrittenConfig.of_file(Path(path))
    if isinstance(source.data, dict):
        apply(source, overrides)
    document = source.settings()
    if command or objective:  # what is typed goes first
        document |= {"command": (), "objective": ""}
    elif words := document["command"]:
        command = f"-- {shell_line(words)}"
        if document["objective"]:
            source.refuse(("objective",), "a configuration has one of objective and command")
    objective = bool(document["objective"]) or objective
    if objective is False and document["dispatcher"] == "agents":  # they know what to train
        objective = None
    checker = _Checker(source, document, hardware, command, nodes, True if command else objective)
    config = checker.config()
    source.raise_any()
    assert config is not None, "a configuration without errors is complete"
    return config


@dataclass
class _Checker:
    """Checks that need more than the keys: names of plugins, the space, goals and data."""

    source: WrittenConfig
    document: dict[str, Any]
    given: Hardware | None
    command: str
    nodes: Callable[[str], Hardware] | None
    objective: bool | None  # whether one of the user is tuned; None if that is not known

    def hardware(self) -> Hardware:
        """The hardware as a trial in one slot sees it; the first call imports torch."""
        (slot, _), workers = self.resources, self.document["workers"]
        found = self._hardware or detect()
        return found.in_slots(slot.cpus, slot.gpus, workers.max if workers else None)

    @cached_property
    def _hardware(self) -> Hardware | None:
        """What is given, or what the nodes of a cluster have; None for this machine."""
        if self.given is None and self.nodes and self.document["workload"] is not None:
            where = self.document["dispatcher"], self.document["ray_address"]
            chosen = self.source.checked(("dispatcher",), choose_dispatcher, *where)
            if chosen and chosen[0] == "ray" and chosen[1]:
                return self.nodes(chosen[1])
        return self.given

    @cached_property
    def resources(self) -> tuple[Resources, str]:
        """The resources of a slot, which has a GPU by default, and a line about that."""
        slot, workers = self.document["resources"], self.document["workers"]
        slot = slot if isinstance(slot, dict) else {}  # none are named
        found = len(self._hardware.gpus) if self._hardware else None
        num_gpus = local_gpus() if found is None and "gpus" not in slot else found or 0
        return slot_resources(slot, num_gpus, workers.max if workers else None)

    def config(self) -> Config | None:
        """The configuration; None if there are problems."""
        document, checked = self.document, self.source.checked
        suggester = checked(("suggester",), choose, SUGGESTERS, document["suggester"])
        stopper = checked(("stopper",), choose, STOPPERS, document["stopper"])
        checked(("trackers",), check_trackers, document["trackers"])
        workload = self._workload()
        name = checked(("name",), check_name, document["name"] or Path(self.source.name).stem)
        self._check_reports(bool(self.command) or (workload is None and self.objective is None))
        if workload is None and (self.objective is False or document["workload"] is not None):
            return None  # without a workload, nothing else can be checked
        tunable = checked(("workload",), Tunable.of, workload, self.hardware)
        if tunable is None:
            return None
        # Without a space, a function says it as it runs.
        asks = workload is None and bool(self.objective) and not self.command
        asks = asks and document["space"] is None
        resolution = Resolution(self.source, tunable, document["fixed"])
        space, constraints = self._space(resolution, asks)
        goals, data, fixed = self._goals(workload), document["data"], resolution.untuned()
        if isinstance(folder := data.get("dir"), str) and folder:  # workers run in another folder
            data = {**data, "dir": str(Path(folder).expanduser().absolute())}
        try:
            if workload:
                workload.check(data, fixed)
        except UsageError as error:
            section = "data" if isinstance(error, DataError) else "fixed"
            self.source.refuse((section,), str(error))
        wanted, learns, sources = split_prior(document["prior"])
        prior: Any = None
        if space is not None and suggester is not None:
            prior = checked(("prior",), check_prior, wanted, space, suggester)
        if self.source.errors:
            return None
        resources, note = self.resources
        given = {key: document[key] for key in self.source.data if key not in _ELSEWHERE}
        settings: dict[str, Any] = {
            "resumable": bool(self.command),
            **given,
            "suggester": suggester,
            "stopper": stopper,
            "space": space,
            "constraints": constraints,
            "goals": goals,
            "workload": workload.name if workload else None,
            "data": data,
            "fixed": fixed,
            "metrics": workload.metrics_on(data) if workload else (),
            "name": name,
            "resources": resources,
            "origin": Origin(self.command, document["objective"]),
            "knowledge": Knowledge(prior, learns),
            "history": SpaceHistory(asked={} if asks else None),
        }
        spec = SweepSpec(**settings)
        if stopper.options:
            checked(("stopper",), partial(stopper_of, can_pause=True), spec)
        followed = checked(("space",), follow_strategy, spec, local_slots(spec))
        spec, line = followed or (spec, "")
        checked(("ranks",), max_ranks, spec)
        notes = [text for text in (note, line) if text]
        if self.command:
            notes += _unnamed(spec)
        where = {key: document[key] for key in ("store", "dispatcher", "ray_address")}
        where |= {"prior": tuple(sources), "dropped": tuple(resolution.dropped)}
        return Config(spec, notes=tuple(notes), named=frozenset(self.source.data), **where)

    def _space(
        self, resolution: Resolution, asks: bool
    ) -> tuple[Space | None, tuple[Constraint, ...]]:
        """The space with its constraints, and the constraints on metrics."""
        for name, value in resolution.fixed.items():
            if reason := resolution.tunable.refuse_fixed(name, value):
                self.source.refuse(("fixed", name), reason)
        entries, texts = self.document["space"], self.document["constraints"]
        names = entries if entries is not None else resolution.tunable.parameters
        metrics, expressions = split_constraints(texts, names)
        found: tuple[Constraint, ...] = ()
        for index, text in enumerate(texts):
            if text in metrics:
                found += self.source.checked(("constraints", index), parse_constraints, text) or ()
        return Space() if asks else resolution.space(entries, expressions), found

    def _workload(self) -> type[Workload] | None:
        name = self.document["workload"]
        if name is not None and not self.objective:
            found = self.source.checked(("workload",), WORKLOADS.require, name)
            return WORKLOADS.get(found) if found else None
        if name is not None:
            own = "objective:" if self.document["objective"] else "--objective"
            given = "a command" if self.command else own
            rule = f"with {given} a configuration has no workload; leave one of them out"
            self.source.refuse(("workload",), rule)
        elif self.objective is False and "workload" not in self.source.data:
            self.source.refuse(
                ("workload",),
                f"a workload ({', '.join(WORKLOADS.names())}) is needed, "
                "or a function of your own named with --objective FILE:NAME, "
                "or a command after --: -- python train.py --lr={lr}",
            )
        return None

    def _goals(self, workload: type[Workload] | None) -> tuple[Goal, ...]:
        goals = self.document["goals"]
        if goals is None:
            goals = workload.goals if workload else ()
        if self.source.is_broken(("goals",)):
            return ()
        parsed = self.source.checked(("goals",), parse_goals, goals) or ()
        last_report_counts = workload is not None and workload.last_report_counts
        return tuple(replace(goal, at_end=goal.at_end or last_report_counts) for goal in parsed)

    def _check_reports(self, command: bool) -> None:
        """Check how a command reports its metrics; `command`: whether one is tuned, or may be."""
        if not command:
            for name, rule in _OF_COMMANDS.items():
                if self.document[name] not in (KEYS[name].default, {}):
                    self.source.refuse((name,), rule)
            return
        for name, pattern in self.document["reports"].items():
            if name != CSV_FILE:
                self.source.checked(("reports", name), compile_pattern, name, pattern)


def _unnamed(spec: SweepSpec) -> list[str]:
    """A line about parameters that a command does not get as arguments; none if it gets all."""
    names = [
        name for name in unnamed(spec.origin.command, spec.space.parameters) if name != spec.ranks
    ]
    if not names:
        return []
    return [
        f"the command does not name {', '.join(names)}: unless the program reads AUTOML_PARAMS, "
        f"nothing changes with them; as an argument: --{names[0]} {{{names[0]}}}"
    ]


def apply(source: WrittenConfig, overrides: Iterable[str | Override]) -> None:
    """Set each override in a configuration; later ones win."""
    for given in overrides:
        if override := _parsed(source, given):
            _set(source, override)


def plain_changes(overrides: Sequence[str | Override]) -> dict[str, Any]:
    """The plain values of KEY=VALUE words by their keys.

    Raises:
        ConfigError: a word or a value is malformed.
    """
    source, found = WrittenConfig("what to set"), dict[str, Any]()
    for text in overrides:
        if override := _parsed(source, text):
            found[override.key] = _value(source, override, (override.key,))
    source.raise_any()
    return found


def _parsed(source: WrittenConfig, given: str | Override) -> Override | None:
    if isinstance(given, Override):
        return given
    key, equals, value = given.partition("=")
    label = f"override {shown(given)}"
    if equals and all(part.strip() for part in key.split(".")):
        return Override(key, value, label)
    rule = "an override is KEY=VALUE with a dotted key, such as budget.trials=10"
    source.add((), rule, (label, 0))
    return None


def _set(source: WrittenConfig, override: Override) -> None:
    path, line = _path(source.data, override.key), (override.label, 0)
    inner = source.data
    for depth, part in enumerate(path[:-1], start=1):
        if inner.get(part) in (None, "auto"):
            # `precision: auto` and `precision.default=bf16` may be combined.
            inner[part] = {}
            source.lines[path[:depth]] = line
        inner = inner[part]
        if not isinstance(inner, dict):
            return source.add(path, f"{'.'.join(path[:depth])} has no parts to set", line)
    kept = {place: at for place, at in source.lines.items() if place[: len(path)] != path}
    source.lines = {**kept, path: line}
    inner[path[-1]] = _value(source, override, path)
    return None


def _path(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The path of a key. Names of parameters may have dots themselves: `space.model.lr.low`.

    A name ends where it is one of the file's, else before the first field of an entry.
    """
    section, *rest = key.split(".")
    if section not in _FIELDS or not rest:
        return (section, *rest)
    known = data.get(section)
    names = (".".join(rest[:length]) for length in range(len(rest), 0, -1))
    name = next((one for one in names if isinstance(known, dict) and one in known), None)
    if name is None:
        fields = (i for i, part in enumerate(rest) if i and part in _FIELDS[section])
        name = ".".join(rest[: next(fields, len(rest))])
    inner = rest[name.count(".") + 1 :]
    if inner[:1] == ["when"] and len(inner) > 1:  # a parent's name
        inner = ["when", ".".join(inner[1:])]
    return (section, name, *inner)


def _value(source: WrittenConfig, override: Override, path: Place) -> Any:
    """The plain value; None, with an error, if it is malformed."""
    text = override.value.strip(" ")
    if text[:1] in ("[", "{", '"', "'"):
        return source.parsed(text, path, override.label)
    try:
        return plain_scalar(text)
    except ValueError as error:
        source.add(path, str(error), (override.label, 0))
        return None


@dataclass(frozen=True)
class Changes:
    """What is set of a sweep.

    Args:
        budget: by limit; None removes it.
        workers: None if they stay.
        space: by parameter, not checked yet: a value, a list, or "auto".
    """

    budget: Mapping[str, Any]
    workers: WorkerRange | None
    space: Mapping[str, Any]


def read_changes(given: Mapping[str, Any]) -> Changes:
    """The changes that values by key describe: `budget.NAME`, `workers`, `space.NAME`.

    Raises:
        UsageError: a key or the value of one is wrong.
    """
    budget, space = dict[str, Any](), dict[str, Any]()
    workers: WorkerRange | None = None
    for key, value in given.items():
        section, _, name = key.partition(".")
        if key == "workers":
            workers = read_workers(value)
        elif section == "budget" and name in LIMITS:
            budget[name] = LIMITS[name].read(key, value)
        elif section == "space" and name:
            space[name] = value
        else:
            known = ["workers", *(f"budget.{one}" for one in LIMITS), "space.NAME"]
            raise UsageError(f"{key!r} cannot be set: {nearest(key, known)}")
    return Changes(budget, workers, space)


def limit_of(space: Space, name: str, value: Any) -> Limit:
    """The limit that a value, a range `(low, high)`, or a list of choices says in Python.

    Raises:
        UsageError: the parameter is unknown, or it cannot have a value.
    """
    parameter = known_parameter(space, name)
    value = plain(value)
    several = isinstance(value, tuple) and not parameter.legal(value)
    values: list[Any] = [parameter.accept(one) for one in (value if several else [value])]
    if not values:
        raise UsageError(f"{name} needs a value, a range or choices, got []")
    if isinstance(parameter, Choice):
        return Limit(tuple(values))
    if len(values) > 2 or values[0] > values[-1]:
        raise UsageError(f"the range of {name} is [LOW, HIGH], got {show(value)}")
    return Limit(low=values[0], high=values[-1])


def known_parameter(space: Space, name: str) -> Parameter:
    """The parameter of a name; raises UsageError if the sweep does not tune it."""
    if name not in space.parameters:
        hint = nearest(name, list(space.parameters))
        raise UsageError(f"the sweep does not tune {name!r}: {hint}")
    return space.parameters[name]
