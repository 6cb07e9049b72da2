"""Checks of a sweep's spec and of its store, before anything is created."""

import inspect
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from automl.core import SweepSpec, parse_goals
from automl.core.arguments import check_name
from automl.core.spec import KEYS, check_room, max_ranks
from automl.dispatch import DISPATCHERS
from automl.dispatch._make import local_slots
from automl.errors import StoreError, UsageError
from automl.stopping import STOPPERS
from automl.suggesters import SUGGESTERS
from workers.artifacts.copies import check_writable
from workers.artifacts.location import NONE
from workers.own_loop.knobs import mentions, without_prepare

from .plugins import Plugins

# What a function names if it goes on from what an earlier attempt has saved.
_GOES_ON = (
    *("restore", "resumed", "LightGBMCallback", "LightningCallback"),
    *("TransformersCallback", "XGBoostCallback"),
)
_importing: ContextVar[Path | None] = ContextVar("importing", default=None)


@contextmanager
def importing(file: Path) -> Iterator[None]:
    """Inside, no sweep may begin: the command line imports the file of an objective."""
    token = _importing.set(file)
    try:
        yield
    finally:
        _importing.reset(token)


def check_not_importing() -> None:
    """Raise UsageError inside `importing`."""
    if (file := _importing.get()) is not None:
        raise UsageError(
            f"{file.name} begins a sweep when it is imported: "
            "put that under if __name__ == '__main__'"
        )


def check_spec(
    spec: SweepSpec,
    dispatcher: str,
    objective: Callable[[Any], Any] | None,
    plugins: Plugins | None = None,
) -> None:
    """Raise UsageError if something is unknown or does not fit.

    A plugin is imported only if that is needed.

    Args:
        plugins: the suggester and the stopper; None for those that the spec names.
    """
    check_name(spec.name)
    plugins = plugins or Plugins.of(spec)
    if plugins.stopper.options:
        plugins.make_stopper(spec, can_pause=True)  # it checks the ranges of its options
    for name in ("max_steps", "max_retries"):
        KEYS[name].read(name, getattr(spec, name))
    if plugins.suggester.name != KEYS["suggester"].default:
        plugins.suggester.kind(SUGGESTERS)  # its package may not be installed
    if spec.asked is not None and plugins.stopper.kind(STOPPERS).proposes:
        raise UsageError(f"the stopper {spec.stopper!r} needs a space that is declared: give one")
    check_artifacts(spec)
    DISPATCHERS.require(dispatcher)
    if dispatcher != "agents":  # they know what to train
        _check_objective(spec, objective)
        _check_ranks(spec, dispatcher)
    named = spec.budget.until
    if named and (len(spec.goals) > 1 or not plugins.suggester.kind(SUGGESTERS).predicts_gain):
        raise UsageError(
            f"a budget of {named} needs a single goal and a suggester that predicts gains, such as "
            f"'bayes'; got {len(spec.goals)} goals and {spec.suggester!r}"
        )


def _check_objective(spec: SweepSpec, objective: Callable[[Any], Any] | None) -> None:
    if spec.workload is None and objective is None:
        raise UsageError(f"sweep {spec.name!r} runs your own objective: give it as `objective`")
    if spec.workload is not None and objective is not None:
        raise UsageError(
            f"sweep {spec.name!r} runs the workload {spec.workload!r}: it takes no objective"
        )
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


def usual_stopper(objective: Callable[[Any], Any] | None, goals: Any) -> str:
    """The stopper if none is named: `median` for a function that asks `trial.should_prune()`."""
    prunes = objective is not None and mentions(objective, "should_prune")
    return "median" if prunes and len(parse_goals(goals)) == 1 else "none"


def goes_on(objective: Callable[[Any], Any] | None) -> bool:
    """Whether a function goes on from its checkpoint, so that a stopper may pause its trials.

    It does if it calls `trial.restore`, reads `trial.resumed` or uses one of our callbacks, which
    keep checkpoints. Otherwise its attribute `resumable` says so.
    """
    said = getattr(objective, "resumable", None)
    return mentions(objective, *_GOES_ON) if said is None else bool(said)


def lines_about_knobs(spec: SweepSpec, objective: Callable[[Any], Any] | None) -> list[str]:
    """A line about the knobs that act only through `trial.prepare`, if no function calls it."""
    if objective is None or spec.command:
        return []
    names = without_prepare(spec.space, objective)
    act = "acts" if len(names) == 1 else "act"
    line = f"{', '.join(names)}: {act} only if the function calls trial.prepare, or reads the value"
    return [line] if names else []


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
    if spec.artifacts not in ("", NONE) and not spec.received:
        check_writable(spec.artifacts)


def check_store(location: str, *, whole: bool = False) -> None:
    """Raise StoreError if a store can be neither opened nor created; creates nothing.

    Args:
        whole: read all of it, with SQLite's own check and every checksum.
    """
    from automl.ledger import Ledger
    from automl.ledger.database import IN_MEMORY, is_ledger, locate, translated

    with translated(location):
        _, file, _ = locate(location)
    if file is None and (location == IN_MEMORY or not is_ledger(location)):
        return  # the server answers; the first sweep creates its tables
    if file is None or file.exists():
        with closing(Ledger.open(location, readonly=True)) as ledger:
            if whole:
                ledger.check()
        return
    folder = next(parent for parent in file.parents if parent.exists())
    if not folder.is_dir():
        raise StoreError(f"the store {location!r} cannot be made: {folder} is not a folder")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise StoreError(
            f"the store {location!r} cannot be made in {folder}: {error.strerror}"
        ) from error


def existing_sweeps(location: str) -> list[str]:
    """Names of the sweeps in a store; none if it does not exist yet."""
    from automl.ledger import Ledger
    from automl.ledger.database import is_ledger, locate

    _, file, _ = locate(location)
    if (file is not None and not Path(file).exists()) or (file is None and not is_ledger(location)):
        return []
    with closing(Ledger.open(location, readonly=True)) as ledger:
        return [info.name for info in ledger.sweeps()]
