"""The deletion of checkpoints that are not in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec

import automl
from automl.control.beginning import with_artifacts
from automl.core import Origin
from automl.errors import UsageError
from automl.ledger import Ledger
from workers.artifacts import Copies


def save_and_fail(trial: Any) -> dict[str, float]:
    (trial.checkpoint_dir / "state").write_text("0" * 1000)
    (trial.folder / "notes.txt").write_text("mine")
    if trial.number == 1:
        raise ValueError
    return {"loss": float(trial.number)}


def kept(place: str) -> dict[str, list[str]]:
    """The files of each trial's newest copy, by the number of the trial."""
    names = [name.split("/") for name in Copies(place).sizes()]  # SWEEP/trials/NUMBER/...
    found = {name[2]: Copies("/".join((place, *name[:3]))) for name in sorted(names)}
    return {n: sorted(copies.read(copies.found()[0]).files) for n, copies in found.items()}


@pytest.mark.parametrize("where", ["folder", "s3"])
def test_failed_trials_lose_their_checkpoints_there(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    s3 = request.getfixturevalue("s3") if where == "s3" else ""
    place = f"{s3}/{tmp_path.name}" if s3 else str(tmp_path / "kept")
    spec = make_spec(trials=5, artifacts=place)
    ledger = Ledger.open(tmp_path / "store", create=True)
    ledger.create_sweep(spec)
    snapshot = automl.sweeps.run(
        spec, ledger=ledger, objective=save_and_fail, dispatcher="inline", resume=True
    )
    assert [str(t.state) for t in snapshot.trials].count("failed") == 1
    state, notes = "checkpoints/state", "notes.txt"
    assert kept(place) == {
        "0": [state, notes],  # the best
        "1": [notes],  # it has failed
        "2": [state, notes],
        "3": [state, notes],
        "4": [state, notes],
    }
    sizes = Copies(place).sizes()
    assert sum(size for name, size in sizes.items() if "object-" in name) == 4 * 1000 + 5 * 4


def test_each_sweep_has_a_folder_of_its_own_and_keeps_it() -> None:
    first, second = (with_artifacts(make_spec(artifacts="/a"), make_spec()) for _ in range(2))
    assert first.origin.artifacts_folder != second.origin.artifacts_folder
    assert with_artifacts(make_spec(artifacts="/a"), first) == first
    without = with_artifacts(make_spec(artifacts="none"), first)
    assert (without.artifacts, without.origin) == ("none", first.origin)


@pytest.mark.parametrize("folder", ["../other", "a/b", "."])
def test_a_ledger_cannot_name_a_folder_elsewhere(folder: str) -> None:
    from automl.control.beginning import artifacts_of

    with pytest.raises(UsageError, match="not a valid name"):
        artifacts_of(make_spec(artifacts="/kept", origin=Origin(artifacts_folder=folder)))


def test_python_resumes_only_with_the_location(tmp_path: Path) -> None:
    def run(**options: Any) -> automl.Result:
        return automl.sweep(
            save_and_fail, {"x": (0.0, 1.0)}, "minimize loss", suggester="random", name="s",
            dispatcher="inline", store=tmp_path / "store", progress=False, resume=True, **options,
        )  # fmt: skip

    assert len(run(trials=1, artifacts=tmp_path / "kept").trials) == 1
    with pytest.raises(UsageError, match="used only if you name it"):
        run(trials=3)
    assert len(run(trials=3, artifacts=tmp_path / "kept").trials) == 3
    assert sorted(kept(str(tmp_path / "kept"))) == ["0", "1", "2"]
