"""Values, names and commands that nobody expects, and processes of Ray that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import psutil

from attacks.frame import attack, automl, said
from attacks.objectives import states, sweep
from automl.core import Command
from automl.core.goals import parse_goals
from automl.core.spec import SweepSpec
from automl.ledger import Ledger
from automl.workflows import agents
from search_spaces import Float, Space
from workers.context import Context

CONFIG = "name: s\nspace: {x: [a, '$(touch hit)']}\ngoals: minimize loss\nsuggester: random\n"
CLOSES = "import os\n\ndef objective(trial):\n    os.closerange(0, 4096)\n    return 1.0\n"
WAITS = """import time

def objective(trial):
    for step in range(600):
        trial.report(step, loss=1.0)
        time.sleep(0.1)
"""
RAY_SECONDS = 20.0  # until the loss of a process of Ray is told


@attack("it is refused, and the sweep goes on", quick=True)
def a_told_number_beyond_64_bits(folder: Path) -> str:
    with closing(Ledger.open(folder, create=True)) as ledger:
        space, goals = Space(Float("x", 0.0, 1.0)), parse_goals("minimize loss")
        ledger.create_sweep(SweepSpec("s", space, goals, suggester="random", dispatcher="agents"))
        first = agents.ask(ledger, "s", agent="ann")
        metrics = {"loss": 1.0, "peak_memory_bytes": 1e19}
        ledger.send("s", Command("tell", {"attempt": 1, "metrics": metrics}, 0, by="ann"))
        assert agents.ask(ledger, "s", agent="ann")["trial"] == 1
        told = agents.tell(ledger, "s", first["trial"], {"loss": 1.0}, agent="ann", attempt=1)
    assert told["state"] == "completed", told
    return "the next ask and tell are answered"


@attack("a backup is made, and nothing beside the store", quick=True)
def folders_with_signs_of_a_url(folder: Path) -> str:
    for name in ("a#b", "a?b", "a%20b"):
        sweep(folder / name / ".automl", lambda trial: {"loss": 1.0}, trials=1)
        assert list((folder / name / ".automl" / "backup").iterdir()), f"{name}: no backup"
        assert [path.name for path in (folder / name).iterdir()] == [".automl"]
    assert sorted(path.name for path in folder.iterdir()) == ["a#b", "a%20b", "a?b"]
    return "3 folders"


@attack("no value is run by a shell", quick=True)
def a_value_that_is_a_command(folder: Path) -> str:
    (folder / "s.yaml").write_text(CONFIG)
    line = "echo got=$1; echo '{{\"loss\": 1}}' >> $AUTOML_REPORTS"
    given = ("sweep", "s.yaml", "--trials", "2", "--dispatcher", "inline", "--")
    done = automl(folder, *given, "sh", "-c", line, "sh", "{x}")
    assert done.returncode == 0, said(done)
    logs = "".join(path.read_text() for path in folder.glob(".automl/sweeps/s/trials/*/logs/*"))
    assert "got=$(touch hit)" in logs, logs
    assert not (folder / "hit").exists(), "the value was run"
    return "the program gets the value as an argument"


@attack("its trials fail, and the sweep ends")
def an_objective_that_closes_every_file(folder: Path) -> str:
    (folder / "s.yaml").write_text(CONFIG)
    (folder / "mine.py").write_text(CLOSES)
    given = ("--objective", "mine.py:objective", "--dispatcher", "local", "--trials", "2")
    done = automl(folder, "sweep", "s.yaml", *given, seconds=50)
    assert done.returncode == 3, said(done)
    return said(done)


@attack("refused before there is a script", quick=True)
def a_line_break_in_a_partition(folder: Path) -> str:
    (folder / "s.yaml").write_text(CONFIG)
    given = ("--partition", "x\necho evil", "--dry-run", "--objective", "mine.py:objective")
    done = automl(folder, "launch", "slurm", "s.yaml", *given)
    assert done.returncode == 2, said(done)
    assert "\necho evil" not in done.stdout, "a line of the script"
    return said(done)


@attack("each fails its trial with one sentence", quick=True)
def measurements_that_cannot_be(folder: Path) -> str:
    values = [float("nan"), float("inf"), -5.0, 1e300]
    snapshot = sweep(
        folder, lambda trial: {"loss": 1.0, "seconds": values[trial.number]}, trials=len(values)
    )
    assert set(states(snapshot).split()) == {"failed"}, states(snapshot)
    return snapshot.trials[0].message


@attack("it counts for no trial", quick=True)
def a_report_of_a_thread_after_the_end(folder: Path) -> str:
    ended = threading.Event()

    def objective(trial: Context) -> dict[str, float]:
        def late() -> None:
            ended.wait(10)
            trial.report(9, loss=-1.0)

        if trial.number == 0:
            threading.Thread(target=late, daemon=True).start()
        else:
            ended.set()
            time.sleep(0.2)
        return {"loss": 1.0}

    snapshot = sweep(folder, objective, trials=2)
    assert {trial.metrics["loss"] for trial in snapshot.trials} == {1.0}
    assert all(not trial.reports for trial in snapshot.trials)
    return states(snapshot)


@attack(f"within {RAY_SECONDS:g} s the cause is said, and the line that resumes it", seconds=150)
def the_raylet_is_killed(folder: Path) -> str:
    return killed_on_ray(folder, "raylet")


@attack(f"within {RAY_SECONDS:g} s the cause is said, and the line that resumes it", seconds=150)
def the_control_store_of_ray_is_killed(folder: Path) -> str:
    return killed_on_ray(folder, "gcs_server")


def killed_on_ray(folder: Path, name: str) -> str:
    """Kill a process of the Ray that a sweep has started, and wait for the end of the sweep."""
    (folder / "s.yaml").write_text(
        "name: s\nspace: {x: {low: 0.0, high: 1.0}}\n"
        "goals: minimize loss\nsuggester: random\nworkers: 1\n"
    )
    (folder / "mine.py").write_text(WAITS)
    given = ("s.yaml", "--objective", "mine.py:objective", "--dispatcher", "ray", "--trials", "9")
    with subprocess.Popen(
        [sys.executable, "-m", "automl", "sweep", *given],
        cwd=folder,
        env=os.environ | {"HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        with closing(Ledger.open(folder / ".automl", create=True)) as ledger:
            while not _has_reported(ledger):
                assert running.poll() is None, running.communicate()
                time.sleep(0.2)
        children = psutil.Process(running.pid).children(recursive=True)
        (victim,) = [child for child in children if child.name() == name]
        victim.kill()
        begun = time.monotonic()
        printed, _ = running.communicate(timeout=60)
        seconds = time.monotonic() - begun
    assert seconds < RAY_SECONDS, f"{seconds:.0f} s"
    assert running.returncode == 1, printed
    assert "automl resume s --objective mine.py:objective" in printed, printed[-500:]
    return f"{seconds:.0f} s: {printed.strip().splitlines()[-1]}"


def _has_reported(ledger: Ledger) -> bool:
    return any(trial.reports for one in ledger.sweeps() for trial in ledger.trials(one.name))
