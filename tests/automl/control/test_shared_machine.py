"""A sweep beside another one on the same machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import automl
from automl.core.budget import Budget
from automl.core.goals import parse_goals
from automl.core.snapshot import Snapshot
from automl.core.spec import SweepSpec
from automl.dispatch import leases
from automl.dispatch.simulated.dispatcher import SimulatedDispatcher
from automl.ledger import Ledger
from automl.sweeps import conduct
from search_spaces import Float, Space
from search_spaces.hardware import count_cpus

SPACE = Space(Float("x", 0.0, 1.0))


class RealDispatcher(SimulatedDispatcher):
    """Its trials pass for real ones, so that they need leases."""

    estimates: ClassVar[bool] = True


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"


def test_a_sweep_waits_for_the_cores_of_another_and_says_so(tmp_path: Path) -> None:
    cores = max(2, count_cpus())
    other = leases.MachineLeases("other", 1, cores, num_cores=cores)
    for trial in range(cores):
        assert other.take(trial, 1)
    spec = SweepSpec(
        "mine",
        SPACE,
        parse_goals("minimize loss"),
        budget=Budget(trials=20),
        suggester="random",
        workers=count_cpus(),
    )
    busy: list[int] = []
    waits: list[str] = []

    def replay(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
        yield 1.0, {"loss": params["x"]}

    def on_change(snapshot: Snapshot) -> None:
        busy.append(snapshot.busy_slots)
        waits.append(snapshot.waits_for)
        if len(snapshot.trials) >= 10:
            other.close()

    ledger = Ledger.open(tmp_path / "store", create=True)
    ledger.create_sweep(spec)
    count = count_cpus()
    snapshot = conduct(
        spec,
        ledger,
        RealDispatcher,
        lambda: RealDispatcher(replay, count),
        on_change=on_change,
    )
    assert all(trial.state.finished for trial in snapshot.trials)
    if count > 1:
        first = busy[: len(busy) // 3]
        assert max(first) == 1, "one trial at a time while the other holds the cores"
        assert max(busy) == count, "all at once when it has ended"
        assert any("held by sweep 'other', process" in text for text in waits)
        assert waits[-1] == ""


def test_an_inline_sweep_never_waits_and_leaves_nothing(tmp_path: Path, folder: Path) -> None:
    cores = count_cpus()
    other = leases.MachineLeases("other", 1, cores)
    for trial in range(cores):
        assert other.take(trial, 1)
    held: list[Any] = []

    def objective(trial: Any) -> dict[str, float]:
        held.extend(json.loads(path.read_text()) for path in folder.glob("*.json"))
        return {"loss": trial.params["x"]}

    result = automl.sweep(
        objective,
        SPACE,
        "minimize loss",
        trials=3,
        suggester="random",
        dispatcher="inline",
        store=str(tmp_path / "store"),
        name="inline",
        progress=False,
    )
    assert len(result.trials) == 3
    assert [one["cores"] for one in held if one["sweep"] == "inline"] == [1, 1, 1]
    other.close()
    assert leases.current_holders() == []
