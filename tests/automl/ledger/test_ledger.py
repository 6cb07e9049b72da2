from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from objectives import record

from automl.core import (
    Begun,
    Budget,
    Constraint,
    Ended,
    Goal,
    Noted,
    Proposed,
    Resources,
    SweepSpec,
    Trial,
    TrialState,
)
from automl.errors import StoreError, UsageError
from automl.ledger import Hold, Ledger
from automl.ledger.database import FILE_NAME
from search_spaces import Choice, Float, Space
from workers.protocol import Ending, Outcome, Report, Started

SPACE = Space(Float("lr", 1e-5, 1e-1, log=True, default=1e-3), Choice("optimizer", ["sgd", "adam"]))


def make_spec(name: str = "nmt") -> SweepSpec:
    return SweepSpec(
        name,
        SPACE,
        (Goal.parse("maximize bleu within 10m"),),
        (Constraint.parse("peak_memory_bytes <= 8e9"),),
        budget=Budget(trials=12, time=600.0),
        resources=Resources(2, 0.5),
        seed=7,
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path, create=True)


@pytest.fixture
def recorder(ledger: Ledger) -> Hold:
    """Of a sweep that this process holds."""
    return ledger.hold(ledger.create_sweep(make_spec()))


def events_of_a_trial(number: int) -> list:
    return [
        Proposed(number, {"lr": 0.1 + number, "optimizer": "adam"}, "bayes", 1.0),
        Begun(number, 1, 1.5),
        Started(number, 1, "host:7"),
        Report(number, 1, 0, 10, {"loss": math.nan, "bleu": 1.5}, 0.5),
        Report(number, 1, 1, 20, {"loss": -math.inf, "bleu": 2.5}, 1.0),
        Ended(
            Outcome(
                number, 1, Ending.COMPLETED, {"chrf": 1 / 3}, seconds=2.0, peak_memory_bytes=2**40
            ),
            TrialState.COMPLETED,
            at=3.5,
        ),
    ]


def same(one: Trial, other: Trial) -> bool:
    return repr(one) == repr(other)  # nan is not equal to itself


def test_a_sweep_is_read_back_as_it_was_written(ledger: Ledger, tmp_path: Path) -> None:
    environment = {"git_commit": "abc", "packages": {"torch": "2"}}
    assert ledger.create_sweep(make_spec(), environment) == "nmt"
    recorder = ledger.hold("nmt")
    events = [event for number in range(3) for event in events_of_a_trial(number)]
    record(
        ledger, "nmt", *events, Noted("stop", "hopeless", 1), Proposed(3, {"lr": 1e-3}, "default")
    )

    other = Ledger.open(tmp_path, readonly=True)
    assert repr(other.trials("nmt")) == repr(recorder.state.trials)
    assert other.spec("nmt").to_dict() == make_spec().to_dict()
    assert other.state("nmt").environment == environment
    assert other.trials("nmt")[0].reports[0].metrics.keys() == {"loss", "bleu"}
    assert math.isnan(other.trials("nmt")[0].reports[0].metrics["loss"])
    assert other.trials("nmt")[1].metrics["loss"] == -math.inf
    assert [info.num_trials for info in other.sweeps()] == [4]


def test_a_name_in_use_gets_a_number_or_is_refused(ledger: Ledger) -> None:
    long = "n" * 64
    assert [ledger.create_sweep(make_spec()) for _ in range(3)] == ["nmt", "nmt-2", "nmt-3"]
    assert [ledger.create_sweep(make_spec(long)) for _ in range(2)] == [long, "n" * 62 + "-2"]
    assert ledger.spec("nmt-2").name == "nmt-2"
    with pytest.raises(UsageError, match="there is a sweep named 'nmt'"):
        ledger.create_sweep(make_spec(), rename=False)
    assert len(ledger.sweeps()) == 5


@pytest.mark.parametrize(
    "name", ["", "../x", "a/b", "-a", "a\n", "a\0", ".a", "x" * 65, "a b", "‮abc", "ä"]
)
def test_a_name_that_could_leave_its_folder_is_refused(ledger: Ledger, name: str) -> None:
    with pytest.raises(UsageError, match="a name has 1 to 64 of"):
        ledger.create_sweep(make_spec(name))


def test_an_unknown_sweep_names_the_nearest(ledger: Ledger) -> None:
    ledger.create_sweep(make_spec())
    with pytest.raises(UsageError, match="did you mean 'nmt'"):
        ledger.trials("ntm")


def test_the_lock_goes_with_a_process_that_is_killed(tmp_path: Path) -> None:
    Ledger.open(tmp_path, create=True).create_sweep(make_spec())
    code = (
        "import os,signal,sys;from automl.ledger import Ledger;"
        f"l=Ledger.open({str(tmp_path)!r});l.hold('nmt');print('held',flush=True);signal.pause()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    ledger = Ledger.open(tmp_path)
    with pytest.raises(StoreError, match=f"held by process {child.pid} on"):
        ledger.hold("nmt")
    child.kill()
    child.wait()
    assert ledger.snapshot("nmt").state == "interrupted"
    ledger.hold("nmt")
    assert ledger.snapshot("nmt").state == "running"


def test_a_store_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        Ledger.open(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


def test_an_empty_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    for create in (False, True):
        with pytest.raises(StoreError, match="is empty"):
            Ledger.open(tmp_path, create=create)
    assert (tmp_path / FILE_NAME).stat().st_size == 0


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    with pytest.raises(StoreError, match="no ledger of automl"):
        Ledger.open(tmp_path, create=True)


def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"Not a directory|File exists"):
        Ledger.open(tmp_path / "file" / "store", create=True)


def test_a_file_that_another_process_locks_is_a_store_error(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from automl.ledger import database

    monkeypatch.setattr(database, "MAX_BUSY_SECONDS", 0.1)
    ledger = Ledger.open(tmp_path, create=True)
    ledger.create_sweep(make_spec())
    recorder = ledger.hold("nmt")
    blocker = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    recorder.state.apply(Proposed(0, {"lr": 0.1, "optimizer": "sgd"}, "bayes"))
    with pytest.raises(StoreError, match="locked by another process"):
        recorder.commit()
    assert len(Ledger.open(tmp_path).trials("nmt")) == 0  # reading takes no lock
    blocker.execute("ROLLBACK")
    recorder.commit()  # what was applied is still there
    assert len(ledger.trials("nmt")) == 1


def test_a_url_with_a_password_keeps_it_to_itself() -> None:
    with pytest.raises(StoreError) as caught:
        Ledger.open("postgresql+nodriver://me:hunter2@localhost/x")
    assert "hunter2" not in str(caught.value)


def test_many_stores_can_be_made_at_once(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def make() -> None:
        try:
            Ledger.open(tmp_path, create=True).create_sweep(make_spec())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(Ledger.open(tmp_path).sweeps()) == 8
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_reading_imports_neither_torch_nor_ray() -> None:
    code = (
        "import sys, automl.ledger, automl.core.state, automl;"
        "print([m for m in ('torch','ray','pandas','optuna','ax','botorch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
