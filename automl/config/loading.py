"""Loads a configuration file with overrides: checks everything and returns the spec of a sweep."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from automl.control.plugins import Plugins
from automl.core import Constraint, Goal, SweepSpec, parse_constraints, parse_goals
from automl.core.names import NAME
from automl.core.plugin_choice import PluginChoice, choose
from automl.errors import AutomlError, DataError, UsageError
from automl.stopping import STOPPERS
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import Suggester
from automl.suggesters.user_prior import check_prior, without_unavailable
from search_spaces import Space
from search_spaces.hardware import AssumedHardware, Hardware, detect
from search_spaces.plugins import Registry
from workers.workload import Workload
from workers.workloads import WORKLOADS

from .declaration import Declaration
from .mentions import all_known
from .nodes import ConfigProblems, Location, Node, shown
from .overrides import Override, apply
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
    """

    spec: SweepSpec
    store: str = STORE
    dropped: tuple[Exclusion, ...] = ()


def load(
    path: str | Path,
    overrides: Iterable[str | Override] = (),
    *,
    hardware: Hardware | None = None,
    objective: bool | None = False,
) -> Config:
    """Read and check a configuration. Creates nothing.

    Args:
        path: of a YAML file.
        overrides: `KEY=VALUE` texts with dotted keys; later ones win.
        hardware: to run on; None for this machine.
        objective: True if a function of the user is tuned, False if a workload is, None for either.

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
    document = validate(root, problems)
    checker = _Checker(root, document, problems, hardware)
    config = checker.config(Path(path), objective)
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
        self, root: Node, document: Document, problems: ConfigProblems, hardware: Hardware | None
    ) -> None:
        self.root, self.document, self.problems = root, document, problems
        self._hardware = hardware

    def hardware(self) -> Hardware:
        """The hardware as a trial in one slot sees it; the first call imports torch."""
        slot = self.document.resources
        found = self._hardware or detect()
        return found.in_slots(slot.cpus, slot.gpus, self.document.workers)

    def config(self, path: Path, objective: bool | None) -> Config | None:
        """The configuration; None if there are problems."""
        document = self.document
        suggester = self._plugin(("suggester",), SUGGESTERS, document.suggester)
        stopper = self._plugin(("stopper",), STOPPERS, document.stopper)
        workload, name = self._workload(objective), self._name(path)
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
            metrics=workload.metrics if workload else (),
            **Plugins(suggester, stopper).settings(),
            **document.settings(),
        )
        if stopper.options:
            self._check_stopper(spec, Plugins(suggester, stopper))
        return Config(spec, document.store or STORE, found.dropped)

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
        if self._hardware or (gpus and not self.problems.found):
            return False  # only torch knows whether there is a GPU
        assumed = AssumedHardware.with_slots(document.resources.cpus, gpus, document.workers)
        quick = _Checker(root, document, ConfigProblems([*self.problems.found]), assumed)
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
                found += self._parsed(("constraints", index), parse_constraints, text)
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

    def _parsed(self, where: Location, parse: Any, text: str) -> Any:
        try:
            return parse(text)
        except UsageError as error:
            self.problems.under(self.root, where, str(error))
            return ()

    def _known(self, where: Location, registry: Registry[Any], name: str) -> str | None:
        """The name as the registry spells it; None, with a problem, if it has no such name."""
        try:
            return registry.require(name)
        except UsageError as error:
            self.problems.under(self.root, where, str(error))
            return None

    def _plugin(
        self, where: Location, registry: Registry[Any], given: str | dict[str, Any]
    ) -> PluginChoice[Any] | None:
        """The plugin and its options; None, with a problem, if there is no such one."""
        try:
            return choose(registry, given)
        except UsageError as error:
            self.problems.under(self.root, where, str(error))
            return None

    def _check_stopper(self, spec: SweepSpec, plugins: Plugins) -> None:
        """Check the ranges of its options, which its constructor knows."""
        try:
            plugins.make_stopper(spec, can_pause=True)
        except UsageError as error:
            self.problems.under(self.root, ("stopper",), str(error))

    def _workload(self, objective: bool | None) -> type[Workload] | None:
        name = self.document.workload
        if name is None:
            if objective is False and not self.root.child("workload"):
                known = ", ".join(WORKLOADS.names())
                text = (
                    f"a workload ({known}) is needed, "
                    "or a function of your own named with --objective FILE:NAME"
                )
                self.problems.under(self.root, ("workload",), text)
            return None
        if objective:
            text = "with --objective a configuration has no workload; leave one of them out"
            self.problems.under(self.root, ("workload",), text)
            return None
        found = self._known(("workload",), WORKLOADS, name)
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
        parsed: Sequence[Goal] = self._parsed(("goals",), parse_goals, goals) if goals else ()  # type: ignore[arg-type]
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
