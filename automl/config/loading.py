"""Loads a configuration file with overrides: checks everything and returns the spec of a sweep."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from automl.control.beginning import Plugins
from automl.core import Constraint, Goal, Resources, SweepSpec, parse_constraints, parse_goals
from automl.core.arguments import NAME
from automl.core.keys import choose
from automl.core.resources import local_gpus, slot_resources
from automl.core.spec import KEYS, follow_strategy, max_ranks
from automl.core.text import shell_line
from automl.dispatch._make import choose_dispatcher, local_slots
from automl.errors import DataError, UsageError
from automl.stopping import STOPPERS
from automl.suggesters import SUGGESTERS
from automl.suggesters.user_prior import check_prior, split_prior
from automl.trackers.base import check_trackers
from search_spaces import Space
from search_spaces.hardware import Hardware, detect
from search_spaces.knobs.base import DroppedValue
from workers.command.arguments import unnamed
from workers.command.reports import CSV_FILE, compile_pattern
from workers.workload import Workload
from workers.workloads import WORKLOADS

from .overrides import Override, apply
from .resolution import Resolution, Tunable, split_constraints
from .source import WrittenConfig, shown

STORE: Final = KEYS["store"].default
_OF_COMMANDS: Final = {
    "reports": "only a command has reports; add it to the line: -- python train.py --lr={lr}",
    "cwd": "only a command runs in the folder of its trial; a function has trial.folder",
}
_ELSEWHERE: Final = ("store", "prior", "dispatcher", "ray_address", "command")  # not of the spec


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
    checker = _Checker(source, document, hardware, command, nodes)
    config = checker.config(Path(source.name), True if command else objective)
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
    asks: bool = False  # the objective says the space as it runs

    @property
    def slot(self) -> dict[str, Any]:
        """The resources of a slot that the configuration names."""
        given = self.document["resources"]
        return given if isinstance(given, dict) else {}

    @property
    def max_workers(self) -> int | None:
        """The most slots; None for as many as there is room for."""
        workers = self.document["workers"]
        return workers.max if workers else None

    def hardware(self) -> Hardware:
        """The hardware as a trial in one slot sees it; the first call imports torch."""
        slot, _ = self.resources
        found = self._hardware or detect()
        return found.in_slots(slot.cpus, slot.gpus, self.max_workers)

    @cached_property
    def _hardware(self) -> Hardware | None:
        """What is given, or what the nodes of a cluster have; None for this machine."""
        if self.given is None and self.nodes and self.document["workload"] is not None:
            where = self.document["dispatcher"], self.document["ray_address"]
            kind, address = self.source.checked(("dispatcher",), choose_dispatcher, *where) or (
                "",
                None,
            )
            if kind == "ray" and address:
                return self.nodes(address)
        return self.given

    @cached_property
    def resources(self) -> tuple[Resources, str]:
        """The resources of a slot, which has a GPU by default, and a line about that."""
        found = len(self._hardware.gpus) if self._hardware else None
        num_gpus = local_gpus() if found is None and "gpus" not in self.slot else found or 0
        return slot_resources(self.slot, num_gpus, self.max_workers)

    def config(self, path: Path, objective: bool | None) -> Config | None:
        """The configuration; None if there are problems."""
        document = self.document
        suggester = self.source.checked(("suggester",), choose, SUGGESTERS, document["suggester"])
        stopper = self.source.checked(("stopper",), choose, STOPPERS, document["stopper"])
        self.source.checked(("trackers",), check_trackers, document["trackers"])
        workload, name = self._workload(objective), self._name(path)
        no_space = bool(objective) and not self.command and document["space"] is None
        self.asks = no_space and workload is None
        self._check_reports(bool(self.command) or (workload is None and objective is None))
        if workload is None and (objective is False or document["workload"] is not None):
            return None  # without a workload, nothing else can be checked
        tunable = self.source.checked(("workload",), Tunable.of, workload, self.hardware)
        if tunable is None:
            return None
        resolution = Resolution(self.source, tunable, document["fixed"])
        space, constraints = self._space(resolution)
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
            prior = self.source.checked(("prior",), check_prior, wanted, space, suggester)
        if self.source.errors:
            return None
        resources, note = self.resources
        plugins = Plugins(suggester, stopper)
        given = {key: document[key] for key in self.source.data if key not in _ELSEWHERE}
        settings: dict[str, Any] = {
            "resumable": bool(self.command),
            **given,
            **plugins.settings(),
            "space": space,
            "constraints": constraints,
            "goals": goals,
            "workload": workload.name if workload else None,
            "data": data,
            "fixed": fixed,
            "prior": prior,
            "learns": learns,
            "metrics": workload.metrics_on(data) if workload else (),
            "name": name,
            "resources": resources,
            "command": self.command,
            "asked": {} if self.asks else None,
        }
        spec = SweepSpec(**settings)
        if stopper.options:
            self.source.checked(("stopper",), partial(plugins.make_stopper, can_pause=True), spec)
        followed = self.source.checked(("space",), follow_strategy, spec, local_slots(spec))
        spec, line = followed or (spec, "")
        self.source.checked(("ranks",), max_ranks, spec)
        notes = [text for text in (note, line) if text]
        if self.command:
            notes += _unnamed(spec)
        where = {key: document[key] for key in ("store", "dispatcher", "ray_address")}
        where |= {"prior": tuple(sources), "dropped": tuple(resolution.dropped)}
        return Config(spec, notes=tuple(notes), named=frozenset(self.source.data), **where)

    def _space(self, resolution: Resolution) -> tuple[Space | None, tuple[Constraint, ...]]:
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
        return Space() if self.asks else resolution.space(entries, expressions), found

    def _workload(self, objective: bool | None) -> type[Workload] | None:
        name = self.document["workload"]
        if name is not None and not objective:
            found = self.source.checked(("workload",), WORKLOADS.require, name)
            return WORKLOADS.get(found) if found else None
        if name is not None:
            own = "objective:" if self.document["objective"] else "--objective"
            given = "a command" if self.command else own
            rule = f"with {given} a configuration has no workload; leave one of them out"
            self.source.refuse(("workload",), rule)
        elif objective is False and "workload" not in self.source.data:
            self.source.refuse(
                ("workload",),
                f"a workload ({', '.join(WORKLOADS.names())}) is needed, "
                "or a function of your own named with --objective FILE:NAME, "
                "or a command after --: -- python train.py --lr={lr}",
            )
        return None

    def _name(self, path: Path) -> str:
        name: str = self.document["name"] or path.stem
        if not NAME.fullmatch(name) and "name" not in self.source.data:
            self.source.refuse(
                ("name",), f"a name is needed, the file's own is none: {shown(name)}"
            )
        return name

    def _goals(self, workload: type[Workload] | None) -> tuple[Goal, ...]:
        goals = self.document["goals"]
        if goals is None:
            goals = workload.goals if workload else ()
        if not goals and not self.source.is_broken(("goals",)):
            self.source.refuse(("goals",), "at least one goal is needed, such as 'minimize loss'")
        parsed = self.source.checked(("goals",), parse_goals, goals) or () if goals else ()
        last_report_counts = workload is not None and workload.last_report_counts
        return tuple(replace(goal, at_end=goal.at_end or last_report_counts) for goal in parsed)

    def _check_reports(self, command: bool) -> None:
        """Check how a command reports its metrics; `command`: whether one is tuned, or may be."""
        if not command:
            for name, rule in _OF_COMMANDS.items():
                if self.document[name] != KEYS[name].default and self.document[name]:
                    self.source.refuse((name,), rule)
            return
        for name, pattern in self.document["reports"].items():
            if name != CSV_FILE:
                self.source.checked(("reports", name), partial(compile_pattern, name, pattern))


def _unnamed(spec: SweepSpec) -> list[str]:
    """A line about parameters that a command does not get as arguments; none if it gets all."""
    names = [name for name in unnamed(spec.command, spec.space.parameters) if name != spec.ranks]
    if not names:
        return []
    return [
        f"the command does not name {', '.join(names)}: unless the program reads AUTOML_PARAMS, "
        f"nothing changes with them; as an argument: --{names[0]} {{{names[0]}}}"
    ]
