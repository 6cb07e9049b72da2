"""A sweep beside another one on the same machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec

import automl
from automl.control.wiring import conduct
from automl.core.budget import Budget
from automl.core.events import Ended, Noted, Proposed
from automl.core.goals import parse_goals
from automl.core.snapshot import Snapshot
from automl.core.spec import SweepSpec
from automl.dispatch import leases
from automl.ledger import Ledger
from search_spaces import Float, Space
from search_spaces.hardware import count_cpus
from tests.automl.control.shared_machine import RealDispatcher

pytestmark = pytest.mark.usefixtures("lease_folder")
SPACE = Space(Float("x", 0.0, 1.0))


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


def test_on_a_full_machine_each_trial_is_proposed_with_the_results_of_all_before(
    ledger: Ledger,
) -> None:
    cores = count_cpus()
    other = leases.MachineLeases("other", 1, cores)
    for trial in range(cores):
        assert other.take(trial, 1)
    spec = make_spec(trials=6, workers=cores)
    ledger.create_sweep(spec)
    slots = max(2, cores)
    conduct(spec, ledger, RealDispatcher, lambda: RealDispatcher(replay, slots))
    other.close()
    events = list(ledger.events(spec.name))
    proposed = [n for n, event in enumerate(events) if isinstance(event, Proposed)]
    ended = [n for n, event in enumerate(events) if isinstance(event, Ended)]
    assert len(ended) == 6
    assert all(end < begin for end, begin in zip(ended, proposed[1:], strict=False))


def test_that_the_machine_is_not_shared_is_noted_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "file"))
    spec = make_spec(trials=4, workers=2)
    ledger.create_sweep(spec)
    conduct(spec, ledger, RealDispatcher, lambda: RealDispatcher(replay, 2))
    noted = [event for event in ledger.events(spec.name) if isinstance(event, Noted)]
    (note,) = [event.message for event in noted if event.kind == "leases"]
    assert note.startswith(f"the machine is not shared with other sweeps: {tmp_path / 'file'}")


def replay(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    yield 1.0, {"loss": 1.0}


def test_an_inline_sweep_never_waits_and_leaves_nothing(tmp_path: Path, lease_folder: Path) -> None:
    cores = count_cpus()
    other = leases.MachineLeases("other", 1, cores)
    for trial in range(cores):
        assert other.take(trial, 1)
    held: list[Any] = []

    def objective(trial: Any) -> dict[str, float]:
        held.extend(json.loads(path.read_text()) for path in lease_folder.glob("*.json"))
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
