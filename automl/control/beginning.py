"""How a sweep begins: checks, spec, plugins and artifacts; and how its space grows.

The earlier sweeps that it learns from are recorded in its spec, so neither a resumed sweep nor an
equal seed depends on what the store gets or loses later.
"""

from __future__ import annotations

import inspect
import math
import secrets
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from automl.core import (
    KEYS,
    Knowledge,
    Snapshot,
    SpaceHistory,
    SweepSpec,
    Trial,
    TrialState,
    arguments,
    check_room,
    local_gpus,
    max_ranks,
    parse_constraints,
    parse_goals,
    slot_resources,
)
from automl.core.arguments import NAME, check_name
from automl.core.key_kinds import PluginChoice, choose, read_keys
from automl.core.ranking import value
from automl.core.text import shell_line
from automl.dispatch import DISPATCHERS
from automl.dispatch._make import local_slots
from automl.dispatch.base import Dispatcher
from automl.errors import SpaceError, StoreError, UsageError
from automl.stopping import STOPPERS
from automl.stopping.base import Stopper
from automl.suggesters import SUGGESTERS
from automl.suggesters.base import EarlierSweep, SearchContext, Suggester
from automl.suggesters.domain import Domain
from automl.suggesters.proposer import Proposer, make_suggester
from automl.suggesters.queue import BackgroundSuggestionQueue, SuggestionQueue
from automl.suggesters.user_prior import LIKE, check_prior
from search_spaces import Space
from search_spaces.change import Asks, changes, explains, joined, learned, parameter_of, same_kind
from search_spaces.space import read_space
from workers.artifacts import NONE, check_writable
from workers.protocol import Asked, Metric

from .machine import describe
from .outcomes import Journal

if TYPE_CHECKING:
    from automl.ledger import Ledger


MAX_RECORDED: Final = 100  # trials of a sweep


def with_earlier(ledger: Ledger, spec: SweepSpec) -> SweepSpec:
    """The spec of a new sweep with the trials of the earlier sweeps that its prior names.

    Raises:
        UsageError: a sweep is unknown or teaches nothing, or the suggester would ignore it.
    """
    names = [one.removeprefix(LIKE) for one in spec.knowledge.learns]
    earlier = {name: _recorded(ledger.snapshot(name), spec) for name in names}
    for name, table in earlier.items():
        if not table["params"]:
            raise UsageError(
                f"{LIKE}{name}: the sweep has no successful trial with {spec.goals[0].metric} "
                "and a parameter that is tuned here"
            )
    if earlier and not spec.suggester.kind(SUGGESTERS).uses_context:
        raise UsageError(
            f"the suggester {spec.suggester.name!r} ignores earlier sweeps: leave like: out, or "
            "use 'bayes'"
        )
    return replace(spec, knowledge=replace(spec.knowledge, earlier=earlier))


def _recorded(snapshot: Snapshot, spec: SweepSpec) -> dict[str, Any]:
    """Parameters, and the loss by each goal of the sweep, of the first successful trials."""
    known = spec.space.parameters
    rows = [
        (
            {name: v for name, v in trial.params.items() if name in known},
            [value(trial, goal) for goal in spec.goals],
        )
        for trial in snapshot.trials
    ]
    rows = [row for row in rows if row[0] and row[1][0] is not None][:MAX_RECORDED]
    return {
        "params": [params for params, _ in rows],
        "losses": {
            goal.metric: [None if (one := v[i]) is None else goal.loss(one) for _, v in rows]
            for i, goal in enumerate(spec.goals)
        },
    }


SuggesterLike = str | Mapping[str, Any] | type[Suggester] | Suggester | PluginChoice[Suggester]
StopperLike = str | Mapping[str, Any] | type[Stopper] | Stopper | PluginChoice[Stopper]


def suggester_of(spec: SweepSpec, name: str, domain: Domain) -> Suggester:
    """The suggester of the sweep or, if `name` is another one's, that one (the fallback)."""
    choice = spec.suggester if name == spec.suggester.name else name
    context = _context(spec, domain)
    return make_suggester(choice, spec.goals, spec.constraints, context, seed=spec.seed)


def suggestion_queue(
    spec: SweepSpec, kind: type[Dispatcher], note: Callable[[str], None]
) -> SuggestionQueue:
    """The queue of suggestions for a dispatcher of this kind.

    Args:
        note: called with a message when another suggester had to propose.
    """
    proposer = Proposer(
        partial(suggester_of, spec),
        spec.suggester.name,
        Domain.of(spec),
        prospects=spec.budget.until is not None,
        replicates=spec.replicates,
    )
    queue = BackgroundSuggestionQueue if kind.suggests_ahead else SuggestionQueue
    return queue(proposer, note=note)


def stopper_of(spec: SweepSpec, *, can_pause: bool) -> Stopper:
    """The stopper of the sweep; raises UsageError if an option is out of its range."""
    choice: PluginChoice[Stopper] = spec.stopper
    learns = choice.kind(STOPPERS).proposes and spec.suggester.kind(SUGGESTERS).uses_context
    return choice.make(
        STOPPERS,
        spec.goals,
        spec.constraints,
        seed=spec.seed,
        space=spec.known_space,
        max_steps=spec.max_steps,
        can_pause=can_pause,
        **({"context": _context(spec, Domain.of(spec))} if learns else {}),
    )


def _context(spec: SweepSpec, domain: Domain) -> SearchContext:
    earlier = [
        EarlierSweep(
            name,
            table["params"],
            {
                metric: [math.nan if one is None else float(one) for one in losses]
                for metric, losses in table["losses"].items()
            },
        )
        for name, table in spec.knowledge.earlier.items()
    ]
    return SearchContext(domain, spec.knowledge.prior, spec.budget, earlier=earlier)


def read_spec(
    space: Any,
    goals: Any,
    constraints: Any,
    suggester: SuggesterLike,
    stopper: StopperLike = "none",
    *,
    prior: Mapping[str, Any] | None,
    learns: tuple[str, ...] = (),
    metrics: Iterable[Metric],
    local: bool = False,
    **settings: Any,
) -> tuple[SweepSpec, list[str]]:
    """The spec that keyword arguments describe, as a person may write them in Python.

    Args:
        space: None if the objective declares it.
        goals, constraints, suggester, stopper, metrics: as in `automl.sweep`.
        prior: by parameter; learns: its words, see `split_prior`.
        local: whether trials run on this machine; then a slot has a GPU of it by default.
        settings: further keys of a configuration.

    Returns:
        The spec, and lines for a person about the resources. An object of the user, such as their
        own suggester, serves one sweep.

    Raises:
        UsageError: an argument is wrong.
    """
    asked: dict[str, str] | None = {} if space is None else None  # the objective declares it
    space = Space() if space is None else read_space(space)
    choice = choose(SUGGESTERS, suggester, Suggester)
    given = read_keys(KEYS, settings)
    slot, workers = given.pop("resources", {}), given.pop("workers", None)
    num_gpus = local_gpus() if local and "gpus" not in slot else 0
    resources, note = slot_resources(slot, num_gpus, workers.max if workers else None)
    spec = SweepSpec(
        space=space,
        goals=parse_goals(goals),
        constraints=parse_constraints(constraints),
        suggester=choice,
        stopper=choose(STOPPERS, stopper, Stopper),
        knowledge=Knowledge(check_prior({} if prior is None else prior, space, choice), learns),
        metrics=tuple(arguments.listed("metrics", metrics, Metric, "an automl.Metric")),
        resources=resources,
        workers=workers,
        history=SpaceHistory(asked=asked),
        **given,
    )
    check_sweep(spec)
    return spec, [note] if note else []


def check_sweep(spec: SweepSpec) -> None:
    """Check what holds for every sweep, whoever begins it.

    Raises:
        UsageError: no configuration satisfies the constraints of the space, or a constraint is on a
            parameter.
    """
    spec.space.sample(np.random.default_rng(0))
    for one in spec.constraints:
        if one.declared is None and any(
            term.strip() in spec.space.names
            for term in one.metric.replace(" - ", "+").replace("*", "+").strip("()").split("+")
        ):
            raise UsageError(
                f"the constraint {str(one)!r} is on a parameter, and those of a sweep are on "
                "metrics: narrow the range of the parameter, or put the constraint into the space: "
                f"Space(..., constraints=[{str(one)!r}]). If a metric has the same name, declare "
                f"it: metrics=[automl.Metric({one.metric!r})]"
            )


def create(
    ledger: Ledger,
    spec: SweepSpec,
    *,
    rename: bool = False,
    described: bool = True,
) -> SweepSpec:
    """Create a sweep: every way to begin one comes through here.

    Args:
        rename: a name that is in use gets "-2" or so; else it is refused.
        described: whether to record the environment.

    Returns:
        The spec, under the name of the sweep in the ledger.
    """
    check_sweep(spec)
    environment = describe() if described else {}
    return replace(spec, name=ledger.create_sweep(spec, environment, rename=rename))


def with_known_space(writer: Journal, wanted: SweepSpec) -> SweepSpec:
    """Go on with another specification, which then knows the space of the earlier trials.

    If the space has changed, a note of kind "space" says how, and one of kind "code" what of the
    objective. The trials stay as they are.

    Args:
        writer: of the sweep.
        wanted: with the space of the trials to come.

    Raises:
        UsageError: a parameter is missing or has another type, a new one has no default, or a goal
            has another metric or direction.
    """
    stored = writer.spec
    known_goals, given_goals = (
        [(goal.metric, goal.maximize) for goal in spec.goals] for spec in (stored, wanted)
    )
    if known_goals != given_goals:
        known, given = (", ".join(map(str, spec.goals)) for spec in (stored, wanted))
        raise UsageError(
            f"sweep {stored.name!r} has the goal {known!r}, got {given!r}: go on with that, "
            "or begin a sweep of another name"
        )
    if wanted.history.asked is not None:  # what its trials have asked for so far
        wanted = replace(wanted, space=stored.space, history=stored.history)
    spec = replace(
        wanted,
        history=replace(wanted.history, explored=stored.history.explored),
        knowledge=replace(stored.knowledge, prior=wanted.knowledge.prior),
    )
    if stored.space != wanted.space:
        if writer.trials:
            try:
                tried = [trial.params for trial in writer.trials]
                history = replace(
                    spec.history, explored=joined(stored.known_space, wanted.space, tried)
                )
                spec = replace(spec, history=history)
            except SpaceError as error:
                raise UsageError(
                    f"sweep {spec.name!r} has run with another space: {error}"
                ) from error
        check_sweep(spec)
        writer.note("space", "; ".join(changes(stored.space, wanted.space)))
    if said := code_changed(stored, wanted, len(writer.trials)):
        writer.note("code", said)
    writer.specify(spec)
    return spec


def code_changed(stored: SweepSpec, wanted: SweepSpec, num_trials: int) -> str:
    """What of the objective is not as it was when its trials ran, in words; "" for nothing."""
    known, before, now = stored.origin.code, stored.origin.command, wanted.origin.command
    names = [n for n, digest in wanted.origin.code.items() if known.get(n, digest) != digest]
    changed = [f"the code of {' and '.join(names)}"] if names else []
    if before and now and before != now:  # words of a shell, quoted alike
        changed += [f"the command ({before} became {now})"]
    words = (
        f"{' and '.join(changed)} has changed since trial {num_trials - 1}: trials "
        "before and after are compared with each other; begin another sweep if they must not be"
    )
    return words if changed and num_trials else ""


class Growth:
    """Keeps the space of a sweep as its trials have asked for it.

    The space is a function of what the log says that trials asked for; each change of it is in the
    log before a proposal that knows it.

    Args:
        writer: of the sweep.
        grown: called with the new specification, to propose from it.
    """

    def __init__(self, writer: Journal, grown: Callable[[SweepSpec], None]) -> None:
        self._writer, self._grown = writer, grown
        self._told: list[str] = []

    def conflict(self, event: Asked) -> str:
        """Why a range cannot belong to the parameter of that name; "" if it can."""
        spec, asked = self._writer.spec, event.parameter
        known = spec.space.parameters.get(asked["name"])
        if known is None or same_kind(known, parameter_of(asked)):
            return ""
        earlier = f"{(spec.history.asked or {}).get(known.name)} has asked for {known!r}"
        return (
            f"{event.line} asks for {parameter_of(asked)!r}, and {earlier}: "
            "give one of them another name"
        )

    def follow(self, trial: Trial | None) -> None:
        """Learn from what a trial has asked for, and from what it has not."""
        spec = self._writer.spec
        if spec.history.asked is None or trial is None or explains(spec.space, _asks(trial)):
            return
        trials = self._writer.trials
        space, moved = learned(map(_asks, trials))
        if new := [name for name in moved if name not in self._told]:
            self._told += new
            text = "its range depends on other values; its position in it is searched"
            self._writer.note("space", f"{', '.join(new)}: {text}")
        if space != spec.space:
            lines: dict[str, str] = {}
            for one in trials:
                lines = {**{n: asked["line"] for n, asked in (one.asked or {}).items()}, **lines}
            changed = replace(spec, space=space, history=replace(spec.history, asked=lines))
            self._writer.specify(changed)
            self._grown(changed)


def _asks(trial: Trial) -> Asks:
    return Asks(trial.params, trial.asked or {}, trial.state is TrialState.COMPLETED)


def check_spec(spec: SweepSpec, dispatcher: str, objective: Callable[[Any], Any] | None) -> None:
    """Raise UsageError if something is unknown or does not fit.

    A plugin is imported only if that is needed.
    """
    check_name(spec.name)
    suggester, stopper = choose(SUGGESTERS, spec.suggester), choose(STOPPERS, spec.stopper)
    if stopper.options:
        stopper_of(spec, can_pause=True)  # it checks the ranges of its options
    if suggester.name != KEYS["suggester"].default:
        suggester.kind(SUGGESTERS)  # its package may not be installed
    if spec.history.asked is not None and stopper.kind(STOPPERS).proposes:
        raise UsageError(f"the stopper {stopper.name!r} needs a space that is declared: give one")
    check_artifacts(spec)
    DISPATCHERS.require(dispatcher)
    if dispatcher != "agents":  # they know what to train
        _check_objective(spec, objective)
        _check_ranks(spec, dispatcher)
    named = spec.budget.until
    if named and (len(spec.goals) > 1 or not suggester.kind(SUGGESTERS).predicts_gain):
        raise UsageError(
            f"a budget of {named} needs a single goal and a suggester that predicts gains, such as "
            f"'bayes'; got {len(spec.goals)} goals and {suggester.name!r}"
        )


def _check_objective(spec: SweepSpec, objective: Callable[[Any], Any] | None) -> None:
    if (spec.workload is None) is (objective is None):
        what = f"the workload {spec.workload!r}: it takes no objective"
        own = "your own objective: give it as `objective`"
        raise UsageError(f"sweep {spec.name!r} runs {own if objective is None else what}")
    try:
        taken = inspect.signature(objective) if objective else None
    except (TypeError, ValueError):  # such as of a builtin function
        return
    try:
        if taken:
            taken.bind(None)
    except TypeError:
        name = getattr(objective, "__name__", type(objective).__name__)
        raise UsageError(
            f"an objective takes one argument, the trial, and reads its parameters from "
            f"trial.params: def {name}(trial); got {name}{taken}"
        ) from None


def code_of(objective: Any) -> tuple[list[CodeType], dict[str, Any]]:
    """The code of a function and of those of its module and class that it calls; and the module."""
    whole = objective.func if isinstance(objective, partial) else objective
    call = whole if inspect.isroutine(whole) else vars(type(whole)).get("__call__")
    function = getattr(call, "__func__", call)
    module = getattr(function, "__globals__", {})
    known = {**vars(type(getattr(whole, "__self__", whole))), **module}
    codes = [function.__code__] if hasattr(function, "__code__") else []
    for code in codes:  # which are added
        called: list[Any] = [known.get(name) for name in code.co_names]
        own = [one.__code__ for one in called if getattr(one, "__globals__", None) is module]
        inner = [one for one in code.co_consts if isinstance(one, CodeType)]
        codes += [one for one in (*inner, *own) if one not in codes]
    return codes, module


def mentions(objective: Any, *names: str) -> bool:
    """Whether a function, or one of its module or class that it calls, names one of these."""
    codes, _ = code_of(objective)
    return any(not {*code.co_names, *code.co_consts}.isdisjoint(names) for code in codes)


def _check_ranks(spec: SweepSpec, dispatcher: str) -> None:
    """Raise UsageError if the dispatcher cannot run as many ranks as a trial may have."""
    most = max_ranks(spec)
    if most > 1 and spec.workload is None and dispatcher == "inline":
        raise UsageError(
            f"the dispatcher 'inline' runs one rank of your objective, in this process, "
            f"got ranks={spec.ranks!r}: choose 'local' or 'ray'"
        )
    if dispatcher == "ray" and spec.workers is not None:
        check_room(spec, spec.workers.max)
    elif dispatcher == "local" or spec.workers is not None:  # else Ray says how many slots it has
        check_room(spec, local_slots(spec))


def check_artifacts(spec: SweepSpec) -> None:
    """Raise UsageError if artifacts cannot be written from this machine."""
    if spec.artifacts not in ("", NONE) and not spec.origin.received:
        check_writable(spec.artifacts)


def check_store(location: str, *, whole: bool = False) -> list[str]:
    """Raise StoreError if a store can be neither opened nor created; creates nothing.

    Args:
        whole: read all of it, with SQLite's own check and every checksum.

    Returns:
        The names of its sweeps; none if it does not exist yet.
    """
    from automl.ledger import Ledger
    from automl.ledger.database import NoStoreError, locate

    try:
        with closing(Ledger.open(location, readonly=True)) as ledger:
            if whole:
                ledger.check()
            return [info.name for info in ledger.sweeps()]
    except NoStoreError:
        file = locate(location)[1]
    if file is None:
        return []  # the server answers; the first sweep creates its tables
    folder = next(parent for parent in file.parents if parent.exists())
    if not folder.is_dir():
        raise StoreError(f"the store {location!r} cannot be made: {folder} is not a folder")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise StoreError(
            f"the store {location!r} cannot be made in {folder}: {error.strerror}"
        ) from error
    return []


def artifacts_of(spec: SweepSpec) -> str:
    """The location of a sweep's artifacts; "" if it keeps its files in its store."""
    folder = spec.origin.artifacts_folder
    if spec.artifacts in ("", NONE) or not folder:
        return ""
    if not NAME.fullmatch(folder):
        raise UsageError(
            f"the ledger names {folder!r} as the sweep's folder of artifacts, which "
            "is not a valid name: the ledger was changed by somebody else"
        )
    return f"{spec.artifacts}/{folder}"


def check_repeated(stored: SweepSpec, given: str) -> None:
    """Check that a person names the location that the ledger names: it may be a stranger's.

    Args:
        stored: from the ledger.
        given: the location of this call; "" for none.

    Raises:
        UsageError: they differ.
    """
    kept = stored.artifacts
    if kept in ("", NONE) or given in (kept, NONE):
        return
    other = f", not in {given}" if given else ""
    raise UsageError(
        f"the files of the sweep {stored.name} are in {kept}{other}. A location outside of the "
        f"store is used only if you name it: add {shell_line(['--artifacts', kept])} "
        f"(artifacts={kept!r} in Python); or go on without its files: --artifacts {NONE}"
    )


def with_artifacts(spec: SweepSpec, stored: SweepSpec) -> SweepSpec:
    """The spec with the sweep's own folder at its location, which is new for a new sweep.

    Raises:
        UsageError: the sweep has its files at another location, or only the ledger names it.
    """
    check_repeated(stored, "" if spec.origin.received else spec.artifacts)
    folder = stored.origin.artifacts_folder
    if spec.artifacts not in ("", NONE):
        folder = folder or f"{spec.name[:50]}-{secrets.token_hex(6)}"
    return replace(spec, origin=replace(spec.origin, artifacts_folder=folder))
