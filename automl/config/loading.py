"""Loads a configuration file with overrides: checks everything and returns the spec of a sweep."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from automl.control.plugins import Plugins
from automl.core import Constraint, Goal, Resources, SweepSpec, parse_constraints, parse_goals
from automl.core.names import NAME
from automl.core.plugin_choice import PluginChoice, choose
from automl.core.ranks import most_ranks
from automl.core.resources import default_gpus, default_text, local_gpus
from automl.errors import AutomlError, DataError, UsageError
from automl.stopping import STOPPERS
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import Suggester
from automl.suggesters.user_prior import check_prior, without_unavailable
from automl.trackers.base import check_trackers
from search_spaces import Space
from search_spaces.hardware import AssumedHardware, Hardware, detect, may_have_gpus
from workers.workload import Workload
from workers.workloads import WORKLOADS

from .declaration import Declaration
from .mentions import all_known
from .nodes import ConfigProblems, Location, Node, shown
from .overrides import Override, apply
from .reports import add_reports, check_reports
from .resolution import Exclusion, Resolution, split_constraints
from .schema import Document, validate
from .strict_yaml import read_file

STORE = ".automl"


@dataclass(frozen=True)
class Config:
    """A checked configuration.

    Args:
        spec: of the sweep; store: folder or URL of its ledger.
        dropped: parameters and values that are not tried, with the reason.
        notes: what was chosen by default for this machine, each for a person.
        prior: sources of finished trials that the sweep begins with.
    """

    spec: SweepSpec
    store: str = STORE
    dropped: tuple[Exclusion, ...] = ()
    notes: tuple[str, ...] = ()
    prior: tuple[str, ...] = ()


def load(
    path: str | Path,
    overrides: Iterable[str | Override] = (),
    *,
    hardware: Hardware | None = None,
    nodes: Callable[[str], Hardware] | None = None,
    objective: bool | None = False,
    command: str = "",
    reports: Mapping[str, str] | None = None,
) -> Config:
    """Read and check a configuration. Creates nothing.

    Args:
        path: of a YAML file.
        overrides: `KEY=VALUE` texts with dotted keys; later ones win.
        hardware: to run on; None for this machine.
        nodes: finds the hardware of a cluster's nodes with an accelerator ("" for all nodes), for a
            workload that is trained there; None if trials run on this machine.
        objective: True if a function of the user is tuned, False if a workload is, None for either.
        command: that is tuned instead, as it was typed; "" if none is.
        reports: more of the configuration's `reports`.

    Raises:
        ConfigError: the file cannot be read or has errors. The message lists all of them.
    """
    problems = ConfigProblems()
    root = read_file(Path(path), problems)
    if root is None:
        problems.raise_any(str(path))
        raise AssertionError("a file without a tree has a problem")
    if isinstance(root.value, dict):
        apply(root, overrides, problems)
        add_reports(root, reports or {})
    document = validate(root, problems)
    checker = _Checker(root, document, problems, hardware, command, nodes)
    config = checker.config(Path(path), True if command else objective)
    problems.raise_any(str(path))
    assert config is not None, "a configuration without problems is complete"
    return config


@dataclass(frozen=True)
class _Content:
    """The parts of a sweep's spec that depend on the declaration."""

    space: Space | None
    goals: tuple[Goal, ...]
    constraints: tuple[Constraint, ...]
    data: dict[str, Any]
    fixed: dict[str, Any]
    beliefs: dict[str, Any]
    dropped: tuple[Exclusion, ...]


class _Checker:
    """Checks that the schema cannot do: names of plugins, the space, goals and data."""

    def __init__(
        self,
        root: Node,
        document: Document,
        problems: ConfigProblems,
        hardware: Hardware | None,
        command: str,
        nodes: Callable[[str], Hardware] | None = None,
    ) -> None:
        self.root, self.document, self.problems = root, document, problems
        self._given = hardware
        self._nodes = nodes if document.workload is not None else None
        self._command = command

    def hardware(self) -> Hardware:
        """The hardware as a trial in one slot sees it; the first call imports torch."""
        slot = self.resources
        found = self._hardware or detect()
        return found.in_slots(slot.cpus, slot.gpus, self.document.most_workers)

    @cached_property
    def _hardware(self) -> Hardware | None:
        """What is given, or what the nodes of a cluster have; None for this machine."""
        if self._given is None and self._nodes is not None:
            return self._nodes(self.document.resources.accelerator)
        return self._given

    @cached_property
    def resources(self) -> Resources:
        """The resources of a slot; where a machine has GPUs, a slot has one by default."""
        given = self.document.resources
        gpus = given.gpus
        if gpus is None:
            found = len(self._hardware.gpus) if self._hardware else local_gpus()
            gpus = default_gpus(found, self.document.most_workers)
        if gpus == 0 and given.accelerator:
            gpus = 1.0  # the nodes have them
        return Resources(given.cpus, gpus, given.memory, given.accelerator)

    def config(self, path: Path, objective: bool | None) -> Config | None:
        """The configuration; None if there are problems."""
        document = self.document
        suggester = self._checked(("suggester",), choose, SUGGESTERS, document.suggester)
        stopper = self._checked(("stopper",), choose, STOPPERS, document.stopper)
        self._checked(("trackers",), check_trackers, document.trackers)
        workload, name = self._workload(objective), self._name(path)
        is_command = bool(self._command) or (workload is None and objective is None)
        check_reports(self.root, self.document, self.problems, command=is_command)
        if workload is None and (objective is False or document.workload is not None):
            return None  # without a workload, nothing else can be checked
        if workload is not None and self._refused_without_torch(workload, suggester):
            return None
        declaration = self._declaration(workload)
        if declaration is None:
            return None
        found = self._content(declaration, workload, suggester)
        if found.space is None or suggester is None or stopper is None or self.problems.found:
            return None
        spec = SweepSpec(
            name=name,
            space=found.space,
            goals=found.goals,
            constraints=found.constraints,
            workload=workload.name if workload else None,
            data=found.data,
            fixed=found.fixed,
            beliefs=found.beliefs,
            metrics=workload.metrics_on(found.data) if workload else (),
            resources=self.resources,
            **Plugins(suggester, stopper).settings(),
            command=self._command,
            resumable=bool(self._command) if document.resumable is None else document.resumable,
            **document.settings(),
        )
        if stopper.options:
            make = partial(Plugins(suggester, stopper).make_stopper, can_pause=True)
            self._checked(("stopper",), make, spec)
        said = default_text(self.resources.gpus) if document.resources.gpus is None else ""
        notes = (said,) if said else ()
        self._checked(("ranks",), most_ranks, spec)
        return Config(spec, document.store or STORE, found.dropped, notes, tuple(document.prior))

    def _refused_without_torch(
        self, workload: type[Workload], suggester: PluginChoice[Suggester] | None
    ) -> bool:
        """Whether the configuration has errors, and all of them are found without torch.

        Torch takes seconds to load. What this machine cannot run is told by the full check, if
        there is no other error.
        """
        document, root = self.document, deepcopy(self.root)
        given = root.child("resources")
        gpus = 1.0 if given and given.broken_below() else document.resources.gpus
        if gpus is None:
            gpus = float(may_have_gpus() or self._nodes is not None)
        if self._given or (gpus and not self.problems.found):
            return False  # only torch knows whether there is a GPU
        assumed = AssumedHardware.with_slots(document.resources.cpus, gpus, document.most_workers)
        problems = ConfigProblems([*self.problems.found])
        quick = _Checker(root, document, problems, assumed, self._command)
        try:
            declaration = Declaration.of(workload, lambda: assumed)
        except AutomlError:
            return False
        if not all_known(document, declaration):
            return False
        quick._content(declaration, workload, suggester)
        self.problems.found = quick.problems.found
        return bool(self.problems.found)

    def _content(
        self,
        declaration: Declaration,
        workload: type[Workload] | None,
        suggester: PluginChoice[Suggester] | None,
    ) -> "_Content":
        """What depends on the declaration, checked."""
        self._check_fixed(declaration)
        resolution = Resolution(self.root, self.problems, declaration, self.document.fixed)
        space, constraints = self._space(resolution)
        goals = self._goals(workload)
        data, fixed = _with_absolute_folder(self.document.data), resolution.untuned()
        if workload:
            self._check_data(workload, data, fixed)
        beliefs = self._beliefs(space, suggester, resolution)
        dropped = tuple(resolution.dropped)
        return _Content(space, goals, constraints, data, fixed, beliefs, dropped)

    def _space(self, resolution: Resolution) -> tuple[Space | None, tuple[Constraint, ...]]:
        """The space with its constraints, and the constraints on metrics."""
        document = self.document
        names = document.space if document.space is not None else resolution.declaration.parameters
        metrics, expressions = split_constraints(document.constraints, names)
        found: tuple[Constraint, ...] = ()
        for index, text in enumerate(document.constraints):
            if text in metrics:
                found += self._checked(("constraints", index), parse_constraints, text) or ()
        return resolution.space(document.space, expressions), found

    def _beliefs(
        self,
        space: Space | None,
        suggester: PluginChoice[Suggester] | None,
        resolution: Resolution,
    ) -> dict[str, Any]:
        if space is None or suggester is None:
            return {}
        gone = {
            (item.parameter, None if item.value is None else str(item.value))
            for item in resolution.dropped
        }
        try:
            return check_prior(without_unavailable(self.document.beliefs, gone), space, suggester)
        except AutomlError as error:
            self.problems.under(self.root, ("beliefs",), str(error))
            return {}

    def _checked(self, where: Location, check: Callable[..., Any], *arguments: Any) -> Any:
        """What `check` returns; None, with a problem at this place, if it refuses."""
        try:
            return check(*arguments)
        except UsageError as error:
            self.problems.under(self.root, where, str(error))
            return None

    def _workload(self, objective: bool | None) -> type[Workload] | None:
        name = self.document.workload
        if name is None:
            if objective is False and not self.root.child("workload"):
                known = ", ".join(WORKLOADS.names())
                text = (
                    f"a workload ({known}) is needed, "
                    "or a function of your own named with --objective FILE:NAME, "
                    "or a command after --: -- python train.py --lr={lr}"
                )
                self.problems.under(self.root, ("workload",), text)
            return None
        if objective:
            given = "a command" if self._command else "--objective"
            text = f"with {given} a configuration has no workload; leave one of them out"
            self.problems.under(self.root, ("workload",), text)
            return None
        found = self._checked(("workload",), WORKLOADS.require, name)
        return WORKLOADS.get(found) if found else None

    def _name(self, path: Path) -> str:
        if self.document.name is not None:
            return self.document.name
        if not NAME.fullmatch(path.stem) and not self.root.child("name"):
            self.problems.under(
                self.root,
                ("name",),
                f"a name is needed, the file's own is none: {shown(path.stem)}",
            )
        return path.stem

    def _declaration(self, workload: type[Workload] | None) -> Declaration | None:
        try:
            return Declaration.of(workload, self.hardware)
        except AutomlError as error:
            self.problems.under(self.root, ("workload",), str(error))
            return None

    def _goals(self, workload: type[Workload] | None) -> tuple[Goal, ...]:
        goals: Sequence[Any] = self.document.goals or (workload.goals if workload else ())
        if not goals and not self.root.child("goals"):
            text = "at least one goal is needed, such as 'minimize loss'"
            self.problems.under(self.root, ("goals",), text)
            return ()
        parsed = self._checked(("goals",), parse_goals, goals) or () if goals else ()
        last_report_counts = workload is not None and workload.last_report_counts
        return tuple(replace(goal, at_end=goal.at_end or last_report_counts) for goal in parsed)

    def _check_fixed(self, declaration: Declaration) -> None:
        for name, value in self.document.fixed.items():
            reason = declaration.refuse_fixed(name, value)
            if reason:
                self.problems.under(self.root, ("fixed", name), reason)

    def _check_data(
        self, workload: type[Workload], data: dict[str, Any], fixed: dict[str, Any]
    ) -> None:
        try:
            workload.check(data, fixed)
        except UsageError as error:
            section = "data" if isinstance(error, DataError) else "fixed"
            self.problems.under(self.root, (section,), str(error))


def _with_absolute_folder(data: dict[str, Any]) -> dict[str, Any]:
    """The `data` section with an absolute `dir`, because workers run in another folder."""
    folder = data.get("dir")
    return (
        {**data, "dir": str(Path(folder).expanduser().absolute())}
        if isinstance(folder, str) and folder
        else data
    )
