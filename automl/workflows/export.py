"""Exports a trained trial as a folder: weights, configuration, model card."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from automl.control.beginning import artifacts_of, check_repeated
from automl.control.scheduler import seed_of
from automl.core import SweepSpec, Trial
from automl.core.arguments import numbered
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.report.recommendation import (
    best_run,
    learned_space,
    line_of,
    recipe,
    recommended,
)
from automl.report.record import Record, read_confirmation
from workers.artifacts import NONE, fetch, location_of, read_location
from workers.files import MANIFEST, Folder
from workers.functions.saved_state import SAVED, newest_saved
from workers.protocol import CHECKPOINTS, LOGS, WORK

OWN = (CHECKPOINTS, "command", LOGS)  # folders of the workers in a trial's folder


def chosen(ledger: Ledger, sweep: str, number: int | None) -> Trial:
    """The trial of that number; for None the best run of the recommended configuration.

    Raises:
        UsageError: there is no such trial, or no trial has succeeded.
    """
    snapshot = ledger.snapshot(sweep)
    if number is None:
        if snapshot.best is None:
            raise UsageError(f"no trial of {sweep} has succeeded: there is nothing to export")
        record = Record.of(snapshot, read_confirmation(ledger, snapshot))
        found = recommended(record)
        assert found is not None, "a trial has succeeded"
        return best_run(record, found)
    return numbered(snapshot.trials, number)


def export(
    ledger: Ledger, sweep: str, trial: Trial, target: Path, artifacts: str | None = None
) -> dict[str, str]:
    """Write the folder `target`, which must be new or empty.

    Args:
        artifacts: the location of the sweep's artifacts, as the person names it; None for none.

    Returns:
        A description of each file, by its name.

    Raises:
        UsageError: the target is not empty or cannot be written to, this machine has no files of
            the trial, or they are at a location that is not named or damaged there.
    """
    spec = ledger.spec(sweep)
    found_by = _origin(ledger, sweep, trial)
    trial = replace(trial, params=spec.completed(trial.params))
    with files_of_trial(ledger, sweep, trial.number, artifacts) as folder:
        try:
            folder.check()
            if spec.workload is not None:
                files = _of_workload(spec, trial, folder.path, target, found_by)
            else:
                files = _of_objective(spec, trial, folder, target, found_by)
            config = target / "config.yaml"
            config.write_text(recipe(spec, trial, config), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{target} cannot be written: {error.strerror}") from error
    return {**files, config.name: f"trains it again: {line_of(spec, config)}"}


def _origin(ledger: Ledger, sweep: str, trial: Trial) -> str:
    snapshot = ledger.snapshot(sweep)
    count = f"{len(snapshot.trials)} trial{'s' if len(snapshot.trials) > 1 else ''}"
    which = f"Trial {trial.number} of the {count} of the sweep `{sweep}`."
    advice = recommended(Record.of(snapshot, read_confirmation(ledger, snapshot)))
    if advice is None or trial.number not in advice.trials:
        return which
    return "\n".join([which, *advice.lines(snapshot), advice.luck(snapshot)]).rstrip()


def _of_workload(
    spec: SweepSpec, trial: Trial, folder: Path, target: Path, found_by: str
) -> dict[str, str]:
    from workers.export import export as write
    from workers.workloads import WORKLOADS

    assert spec.workload is not None
    made = WORKLOADS.get(spec.workload)(
        trial.params, spec.data, spec.fixed, seed=seed_of(spec, trial.number)
    )
    return dict(write(made, folder, target, trial.metrics, found_by))


def _of_objective(
    spec: SweepSpec, trial: Trial, folder: Folder, target: Path, found_by: str
) -> dict[str, str]:
    """The files that the user's objective has written or saved, and a card."""
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty; name a new folder to export to")
    target.mkdir(parents=True, exist_ok=True)
    checkpoints = folder / CHECKPOINTS
    kept = [(folder, "", OWN), (checkpoints, CHECKPOINTS, (SAVED,))]
    if (saved := newest_saved(checkpoints)) is not None:
        kept.append((saved, f"{CHECKPOINTS}/{SAVED}", (MANIFEST,)))
    files = {}
    for source, place, left_out in kept:
        for name in source.names():
            is_empty = name == WORK and not (source / WORK).names()
            if name not in left_out and not name.startswith(".") and not is_empty:
                (target / place).mkdir(parents=True, exist_ok=True)
                path = source.place(name)
                if path.is_dir():
                    shutil.copytree(path, target / place / name, symlinks=True)
                else:
                    shutil.copy(path, target / place / name, follow_symlinks=False)
                files[str(Path(place, name))] = "written by the objective"
    card = "this card"
    if not any(path.is_file() for path in target.rglob("*")):
        how = (
            "into {trial_dir}"
            if spec.origin.command
            else "by trial.save(state) or into trial.folder"
        )
        card = f"{card}. The trial has left no weights: save some {how}"
    parts = [f"# {spec.name}", found_by, "## Metrics at the end", _table(trial.metrics)]
    parts += ["## Configuration", _table(trial.params)]
    (target / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    if spec.history.asked:
        (target / "space.yaml").write_text(learned_space(spec), encoding="utf-8")
        files["space.yaml"] = "the space that the objective has asked for, as a configuration"
    return {**files, "README.md": card}


def _table(values: Mapping[str, Any]) -> str:
    rows = (f"| {name} | {value} |" for name, value in values.items())
    return "\n".join(["| name | value |", "|---|---|", *rows])


@contextmanager
def files_of_trial(
    ledger: Ledger, sweep: str, number: int, given: str | None = None
) -> Iterator[Folder]:
    """The folder of a trial; what is at the location of the artifacts is fetched for a while.

    Args:
        given: the location as the person names it; None if they name none.

    Raises:
        UsageError: the files are at a location that the person does not name, or an object there is
            missing or damaged.
    """
    spec = ledger.spec(sweep)
    here = ledger.files(sweep) / "trials" / str(number)
    artifacts = "" if read_location(given or "") == NONE else artifacts_of(spec)
    if not artifacts:
        yield here
        return
    check_repeated(spec, read_location(given or ""))
    with tempfile.TemporaryDirectory(prefix="automl-") as folder:
        fetched = fetch(location_of(artifacts, number), Path(folder))
        yield Folder(folder) if fetched else here


def moved_to(spec: SweepSpec, given: str | None) -> SweepSpec:
    """The spec of a sweep that is derived from one, which may be a stranger's.

    Args:
        spec: its location, which is the earlier sweep's, is not taken over.
        given: the location as the person names it; None if they name none.
    """
    location = read_location(given or "")
    kept = spec.with_location("" if location == NONE else location)
    return replace(kept, origin=replace(kept.origin, artifacts_folder=""))
