"""Controllers that are killed, stopped and doubled, and stores that move under them."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import closing
from pathlib import Path

import soak_sweeps
from soak_count import SoakCount
from soak_kills import soak_controllers, soak_workers

from attacks.frame import attack
from automl.errors import StoreError
from automl.ledger import Ledger


def checked(count: SoakCount) -> str:
    """What a soak has counted; fails if something was lost or counted twice."""
    assert count.problems == [], count.problems
    assert (count.lost, count.doubled) == (0, 0)
    assert count.ended == count.sweeps
    return f"{count.kills.total()} kills, {count.acknowledged} acknowledged, nothing lost"


def begin(folder: Path, trials: int, name: str = "x") -> Ledger:
    """A store with a sweep that has not run."""
    ledger = Ledger.open(folder, create=True)
    ledger.create_sweep(soak_sweeps.make_spec(name, trials))
    return ledger


@attack("nothing is lost or counted twice")
def controllers_killed_at_every_point(folder: Path) -> str:
    return checked(soak_controllers(10, seed=7, folder=folder))


@attack("nothing is lost or counted twice", seconds=300)
def controllers_killed_sixty_times(folder: Path) -> str:
    return checked(soak_controllers(60, seed=8, folder=folder))


@attack("replaced, and their trials are tried again", seconds=300)
def workers_killed_on_ray(folder: Path) -> str:
    return checked(soak_workers(9, seed=9, folder=folder))


@attack("the second is refused while the first is only stopped", quick=True)
def a_resume_beside_a_stopped_controller(folder: Path) -> str:
    os.environ["SOAK_PAUSE"] = "0.2"
    with closing(begin(folder, 3)) as ledger:
        first = soak_sweeps.launch(folder, "x")
        while not any(trial.attempts for trial in ledger.trials("x")):
            time.sleep(0.02)
        os.kill(first.pid, signal.SIGSTOP)
        try:
            ledger.acquire("x")
            refused = ""
        except StoreError as error:
            refused = str(error)
        os.kill(first.pid, signal.SIGCONT)
        first.join()
        assert f"held by process {first.pid}" in refused, refused or "it was not refused"
        assert first.exitcode == 0
        assert ledger.snapshot("x").state == "finished"
    return refused


@attack("the sweep goes on where the store is now", quick=True)
def a_store_that_was_moved(folder: Path) -> str:
    begin(folder / "one", 4).close()
    child = soak_sweeps.launch(folder / "one", "x", "committed", 2)
    child.join()
    assert child.exitcode == -signal.SIGKILL
    shutil.move(folder / "one", folder / "two")
    child = soak_sweeps.launch(folder / "two", "x")
    child.join()
    assert child.exitcode == 0
    with closing(Ledger.open(folder / "two", readonly=True)) as ledger:
        return f"{len(ledger.trials('x'))} trials"


@attack("one of them wins, the other is refused; nothing is counted twice", quick=True)
def two_resumes_at_once(folder: Path) -> str:
    with closing(begin(folder, 6)) as ledger:
        children = [soak_sweeps.launch(folder, "x") for _ in range(2)]
        for child in children:
            child.join()
        codes = sorted(child.exitcode for child in children)
        count = SoakCount("controllers")
        count.finish(ledger, "x", 6)
        assert codes in ([0, 1], [0, 0]), codes  # the second may come when the first has ended
        return checked(count)


@attack("each read answers within two seconds of processor time", seconds=300)
def eight_sweeps_beside_tight_readers(folder: Path) -> str:
    with closing(Ledger.open(folder, create=True)) as ledger:
        names = [f"s{number}" for number in range(8)]
        for name in names:
            ledger.create_sweep(soak_sweeps.make_spec(name, 30))
        children = [soak_sweeps.launch(folder, name) for name in names]
        longest, reads = 0.0, 0
        while any(child.is_alive() for child in children):
            for name in names:
                begun = time.process_time()
                ledger.snapshot(name)
                longest = max(longest, time.process_time() - begun)
                reads += 1
        assert [child.exitcode for child in children] == [0] * 8
        assert all(len(ledger.trials(name)) == 30 for name in names)
    assert longest < 2.0, f"{longest:.2f} s"
    return f"{reads} reads, at most {longest:.3f} s of processor time"
