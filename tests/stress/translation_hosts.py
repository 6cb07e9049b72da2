"""Multi30k on separate hosts: gangs of two across them; one is cut off, one is killed, one comes.

A case of `machine_losses.py`. The same sweep then runs undisturbed on one host.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.machines import HOME, WORK, Machine, Machines, start_head, start_node

T = TypeVar("T")
TRIALS = 12
UPDATES = 400  # of a trial
EVERY = 20  # updates between two reports, and between two checkpoints
SENTENCES = {"train": 3000, "val": 100}
STORE = f"{WORK}/store"
BUCKET = "bucket"
S3_PORT = 5000
CUT_SECONDS = 60.0
STATES = ("waiting", "running", "completed", "failed", "stopped", "paused", "interrupted")
CONFIG = {
    "name": "hosts",
    "workload": "translation",
    "data": {"name": "multi30k", "dir": f"{WORK}/multi30k"},
    "goals": "minimize loss",
    "fixed": {
        "parallelism": "ddp",
        "ranks": 2,
        "vocabulary_size": 500,
        "num_heads": 2,
        "batch_tokens": 512,
        "max_length": 40,
        "max_updates": UPDATES,
        "evaluate_updates": EVERY,
        "evaluate_seconds": None,
        "checkpoint_updates": EVERY,
        "checkpoint_seconds": None,
        "eval_sentences": 20,
    },
    "space": {
        "learning_rate": {"low": 1e-3, "high": 8e-3, "log": True},
        "dropout": {"low": 0.0, "high": 0.2},
        "width": [64, 96],
    },
    "budget": {"trials": TRIALS},
    "suggester": "sobol",  # its n-th configuration does not depend on what ends when
    "resources": {"cpus": 1},
    "seed": 1,
}
S3 = """
import signal, sys
from moto.server import ThreadedMotoServer

address, port, bucket = sys.argv[1:]
ThreadedMotoServer(ip_address=address, port=int(port), verbose=False).start()
import s3fs

s3fs.S3FileSystem().mkdir(bucket)
print("ready", flush=True)
signal.pause()
"""
LOOK = """
import json, re, sqlite3, sys
from automl.control.artifacts import artifacts_of
from automl.errors import AutomlError
from automl.ledger import Ledger
from workers.artifacts.snapshots import Snapshots
from workers.artifacts.storage import ArtifactStorage

store, sweep = sys.argv[1:]
every = "select attempt, step from reports where trial = ? order by attempt, sequence"

def stored(artifacts, trial):
    snapshots = Snapshots(ArtifactStorage(artifacts.trial(trial.number)))
    names = snapshots.read(*newest[0]).files if (newest := snapshots.found()) else ()
    return max(map(int, re.findall(r"checkpoints/(\\d+)/", " ".join(names))), default=0)

def seen(trial, artifacts, tables):
    steps = [[] for _ in range(trial.attempts)]
    for attempt, step in tables.execute(every, (trial.number,)):
        steps[attempt - 1].append(step)
    return {
        "number": trial.number, "params": trial.params, "state": str(trial.state),
        "attempts": trial.attempts, "message": trial.message, "steps": steps,
        "stored": stored(artifacts, trial) if artifacts and trial.attempts else None,
        "losses": [[point.step, point.metrics["loss"]] for point in trial.reports],
        "final": [trial.metrics.get("loss"), trial.metrics.get("bleu")],
    }

def look(which):
    try:
        ledger = Ledger.open(store, readonly=True)
        trials = ledger.trials(sweep)
    except AutomlError:  # it has not begun
        return []
    artifacts = artifacts_of(ledger.spec(sweep))
    tables = sqlite3.connect(store + "/ledger.sqlite3")
    found = [seen(trial, artifacts, tables) for trial in trials if str(trial.state) in which]
    tables.close()
    ledger.close()
    return found

for line in sys.stdin:
    print(json.dumps(look(line.split())), flush=True)
"""


@dataclass(frozen=True)
class Interruption:
    """The first attempt of a trial, which has lost a host.

    Args:
        trial: its number.
        stored: the update of the newest checkpoint that the object store had after it.
        at: when, on the clock `time.monotonic`.
    """

    trial: int
    stored: int
    at: float


class TranslationSweep:
    """The sweep, which a machine controls."""

    def __init__(self, machine: Machine, folder: Path, head: str, *options: str) -> None:
        self.machine = machine
        self.log = folder / f"{machine.name}.log"
        machine.write("hosts.json", json.dumps(CONFIG))
        words = ("python", "-m", "automl", "sweep", "hosts.json", "--store", STORE)
        self.process = machine.start(*words, "--ray-address", head, *options, log=self.log)
        self._looker = subprocess.Popen(
            machine.command("python", "-c", LOOK, STORE, str(CONFIG["name"])),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def look(self, *states: str) -> list[dict[str, Any]]:
        """Its trials of these states, see `LOOK`; none before it has begun."""
        assert self._looker.stdin is not None
        assert self._looker.stdout is not None
        self._looker.stdin.write(" ".join(states) + "\n")
        self._looker.stdin.flush()
        found: list[dict[str, Any]] = json.loads(self._looker.stdout.readline())
        return found

    def until(self, found: Callable[[], T | None], seconds: float = 600.0) -> T:
        """Look until something is found; it is returned."""
        deadline = time.monotonic() + seconds
        while (one := found()) is None:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.2)
        return one

    def result(self, seconds: float = 900.0) -> list[dict[str, Any]]:
        """Its trials after its end."""
        assert self.process.wait(seconds) == 0, self.log.read_text()[-6000:]
        return self.look(*STATES)


def hosts(cluster: Machines, folder: Path, data: Path) -> str:
    """Run the sweep on separate hosts, then on one, and compare.

    Args:
        data: the folder that has `multi30k`.
    """
    if not (data / "multi30k").is_dir():
        return f"not run: there is no Multi30k in {data}; name its folder with --data-dir"
    begun = time.monotonic()
    alpha, *trainers = new_hosts(cluster, data, "alpha", "beta", "gamma", "delta")
    serve(alpha, folder / "s3.log")
    head = start_head(alpha, 0)
    for machine in trainers:
        start_node(machine, head, 1)
    options = ("--workers", "3", "--artifacts", f"s3://{BUCKET}/sweeps")
    sweep = TranslationSweep(alpha, folder, head, *options)
    cut, first = lose(sweep, trainers, Machine.cut, rank=0, completed=1)
    time.sleep(max(0.0, first.at + CUT_SECONDS - time.monotonic()))
    cut.join()
    cut.run("ray", "stop", "--force")  # Ray gives a node up that was away; a service restarts it
    start_node(cut, head, 1)
    killed, second = lose(sweep, trainers, Machine.kill, rank=1, completed=6)
    (added,) = new_hosts(cluster, data, "epsilon")
    start_node(added, head, 1)
    trials = sweep.result()
    check(trials, [first, second])
    assert ran(added), f"{added.name} has run no trial"
    for machine in list(cluster.all):
        machine.kill()
    spread = time.monotonic() - begun
    (omega,) = new_hosts(cluster, data, "omega")
    alone = TranslationSweep(omega, folder, start_head(omega, 2), "--workers", "2").result()
    check(alone, [])
    for one, other in zip(trials, alone, strict=True):
        for key in ("params", "losses", "final"):
            assert one[key] == other[key], (key, one, other)
    return (
        f"{TRIALS} trials completed in {sum(trial['attempts'] for trial in trials)} attempts: "
        f"{cut.name} was cut off in trial {first.trial}, which went on at update {first.stored}; "
        f"{killed.name} was killed in trial {second.trial}, which went on at update "
        f"{second.stored}; {added.name} was added. All losses are equal to those of one host "
        f"({spread:.0f} s and {time.monotonic() - begun - spread:.0f} s)"
    )


def new_hosts(cluster: Machines, data: Path, *names: str) -> list[Machine]:
    """New machines that have the data and know the object store."""
    made = [cluster.add(name) for name in names]
    for machine in made:
        for split, count in SENTENCES.items():
            for language in ("en", "de"):
                with gzip.open(data / "multi30k" / f"{split}.{language}.gz", "rt") as file:
                    lines = [line for _, line in zip(range(count), file, strict=False)]
                machine.write(f"multi30k/{split}.{language}", "".join(lines))
        server = f"http://{cluster.all[0].address}:{S3_PORT}"
        keys = "aws_access_key_id = key-of-the-test\naws_secret_access_key = secret-of-the-test\n"
        text = f"[default]\nregion = us-east-1\nendpoint_url = {server}\n{keys}"
        machine.write(f"{HOME}/.aws/config", text)
    return made


def serve(machine: Machine, log: Path) -> None:
    """Start the object store on a machine."""
    process = machine.start("python", "-c", S3, machine.address, str(S3_PORT), BUCKET, log=log)
    deadline = time.monotonic() + 60.0
    while "ready" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def lose(
    sweep: TranslationSweep,
    trainers: Sequence[Machine],
    how: Callable[[Machine], None],
    *,
    rank: int,
    completed: int,
) -> tuple[Machine, Interruption]:
    """Lose the host of a rank of a trial that has checkpoints, and wait for the next attempt.

    Args:
        how: cuts the host off, or kills it.
        rank: whose host it is.
        completed: how many trials must have completed before.

    Returns:
        The host, and what it interrupted.
    """

    def due() -> dict[str, Any] | None:
        if len(sweep.look("completed")) < completed:
            return None
        return next(filter(can_be_lost, sweep.look("running")), None)

    def again() -> dict[str, Any] | None:
        return next((one for one in sweep.look("running") if one["attempts"] > 1), None)

    trial = sweep.until(due)
    number = trial["number"]
    (first,), (second,) = (
        [machine for machine in trainers if log_of(machine, number, one)] for one in (0, 1)
    )
    assert first is not second, "the gang is on one host"
    lost = (first, second)[rank]
    how(lost)
    at = time.monotonic()
    trial = sweep.until(again)  # it has no checkpoint of its own so soon
    assert (trial["number"], trial["attempts"]) == (number, 2), trial
    return lost, Interruption(number, trial["stored"], at)


def can_be_lost(trial: Mapping[str, Any]) -> bool:
    """Whether a trial is in the second quarter of its only attempt."""
    reported = max(trial["steps"][0], default=0)
    return trial["attempts"] == 1 and UPDATES // 4 <= trial["stored"] <= reported <= UPDATES // 2


def log_of(machine: Machine, trial: int, rank: int) -> str:
    """The log of a rank of the first attempt on a machine; "" if there is none."""
    path = f"*/trials/{trial}/logs/attempt-1-rank-{rank}.log"
    return machine.run("find", STORE, "-path", path) if ran(machine) else ""


def ran(machine: Machine) -> bool:
    """Whether a machine has run trials."""
    return "store" in machine.run("ls", WORK)


def check(trials: Sequence[Mapping[str, Any]], interruptions: Sequence[Interruption]) -> None:
    """Every trial has completed, and each attempt has begun where the stored checkpoint ends."""
    assert [trial["state"] for trial in trials] == ["completed"] * TRIALS, trials
    attempts = sum(trial["attempts"] for trial in trials)
    assert attempts == TRIALS + len(interruptions), trials
    stored = {one.trial: one.stored for one in interruptions}
    for trial in trials:
        first, *more = trial["steps"]
        begun = [0, *([stored[trial["number"]]] if trial["number"] in stored else [])]
        assert first == list(range(EVERY, first[-1] + 1, EVERY)), trial
        assert [steps[0] - EVERY for steps in trial["steps"]] == begun, (begun, trial)
        assert begun[-1] <= first[-1] <= UPDATES, trial
        for steps in more:
            assert steps == list(range(steps[0], UPDATES + 1, EVERY)), trial
        whole = list(range(EVERY, UPDATES + 1, EVERY))
        assert [step for step, _ in trial["losses"]] == whole, trial
        assert trial["stored"] in (UPDATES, None), trial
