"""Run a sweep as a job of a real Slurm: submit it, requeue it in the middle, see it finish.

python tests/stress/slurm_job.py                    requeued by hand and at its time limit
python tests/stress/slurm_job.py --quick [--check]  requeued by hand only
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from slurm_cluster import missing, scontrol, slurm_cluster  # noqa: E402

TRIALS = 8
STEPS = 20
WAIT_SECONDS = 400.0
TRAIN = """
import json
import time


def objective(trial):
    kept = trial.checkpoint_dir / "step.json"
    first = json.loads(kept.read_text())["step"] + 1 if kept.exists() else 1
    with open("steps.jsonl", "a") as steps:
        for step in range(first, {steps} + 1):
            time.sleep({seconds})
            print(json.dumps([trial.number, step]), file=steps, flush=True)
            kept.write_text(json.dumps({{"step": step}}))
            if not trial.report(step=step, loss=trial.params["x"] ** 2 + 1 / step):
                break
    return {{}}
"""
CONFIG = """
name: toy
space:
  x: {{low: -1.0, high: 1.0, default: 0.5}}
goals: minimize loss
budget: {{trials: {trials}}}
suggester: random
resumable: true
resources: {{cpus: 1}}
"""


class Job:
    """A job that `automl launch slurm` submits, in a folder of its own.

    Args:
        environment: of the cluster; folder: where it runs; options: of `automl launch slurm`.
    """

    def __init__(
        self, environment: dict[str, str], folder: Path, *options: str, seconds: float = 0.5
    ) -> None:
        self.environment, self.folder = environment, folder
        (folder / "toy.yaml").write_text(CONFIG.format(trials=TRIALS))
        (folder / "train.py").write_text(TRAIN.format(steps=STEPS, seconds=seconds))
        told = self.automl(
            "launch", "slurm", "toy.yaml", "--objective", "train.py", *options, "--json"
        )
        self.number = json.loads(told)["job"]
        self.log_file = folder / json.loads(told)["log"]

    def automl(self, *arguments: str) -> str:
        """What `automl` prints; it must succeed."""
        done = self.try_automl(*arguments)
        if done.returncode:
            raise RuntimeError(f"automl {' '.join(arguments)} fails: {done.stderr}")
        return done.stdout

    def try_automl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `automl` in the folder of the job."""
        return subprocess.run(
            [sys.executable, "-m", "automl", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def log(self) -> str:
        """The messages of the job so far."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def steps(self) -> Counter[tuple[int, int]]:
        """How often each step of each trial was computed."""
        file = self.folder / "steps.jsonl"
        return Counter(
            map(tuple, map(json.loads, file.read_text().splitlines() if file.exists() else ()))
        )

    def facts(self) -> dict[str, str]:
        """What Slurm says of the job."""
        return scontrol(self.environment, self.number)

    def wait_for_steps(self, count: int) -> None:
        """Wait until so many steps were computed."""
        deadline = time.monotonic() + WAIT_SECONDS
        while sum(self.steps().values()) < count:
            if time.monotonic() > deadline or self.facts()["JobState"] in ("FAILED", "COMPLETED"):
                raise TimeoutError(f"only {sum(self.steps().values())} steps:\n{self.log}")
            time.sleep(0.5)

    def wait_until_ended(self) -> dict[str, str]:
        """Wait for the end of the job; what Slurm says of it then."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            facts = self.facts()
            if facts["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"):
                return facts
            if facts["JobState"] == "PENDING":
                # Slurm holds a requeued job for two minutes. Its nodes refuse a job that starts in
                # the second in which they ended it ("Job credential revoked").
                time.sleep(3.0)
                update = ["scontrol", "update", f"JobId={self.number}", "StartTime=now"]
                subprocess.run(update, env=self.environment, check=False, capture_output=True)
            time.sleep(0.5)
        raise TimeoutError(f"the job has not ended: {facts}\n{self.log}")

    def requeue(self) -> None:
        """`scontrol requeue`."""
        subprocess.run(["scontrol", "requeue", self.number], env=self.environment, check=True)

    def problems(self) -> list[str]:
        """What is wrong with a job that has ended; each trial has at most one step twice a run."""
        facts = self.facts()
        trials = json.loads(self.automl("trials", "toy", "--json"))
        runs = int(facts["Restarts"]) + 1
        twice: Counter[int] = Counter()
        for (trial, _), count in self.steps().items():
            twice[trial] += count - 1
        return [
            *([] if facts["JobState"] == "COMPLETED" else [f"the job is {facts['JobState']}"]),
            *([] if runs > 1 else ["the job was not requeued"]),
            *([] if len(trials) == TRIALS else [f"{len(trials)} trials"]),
            *(f"trial {t['number']} is {t['state']}" for t in trials if t["state"] != "completed"),
            *(f"trial {t} computed {n} steps twice" for t, n in twice.items() if n > runs - 1),
            *(
                f"trial {t['number']} lacks steps"
                for t in trials
                if any((t["number"], step) not in self.steps() for step in range(1, STEPS + 1))
            ),
        ]


def report(name: str, job: Job) -> list[str]:
    """Print what has happened; the problems."""
    facts = job.wait_until_ended()
    print(f"\n== {name}: job {job.number}\n{job.log}", flush=True)
    print(
        " ".join(f"{key}={facts[key]}" for key in ("JobState", "Restarts", "ExitCode", "RunTime"))
    )
    print(job.automl("status", "toy"))
    total, different = sum(job.steps().values()), len(job.steps())
    print(f"{different} steps of {TRIALS} trials, {total - different} computed twice")
    return [f"{name}: {problem}" for problem in job.problems()]


def main() -> int:
    """Run and judge; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if reason := missing():
        print(reason)
        return 2
    problems: list[str] = []
    with slurm_cluster() as environment, tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "requeued"
        folder.mkdir()
        job = Job(environment, folder, "--nodes", "2", "--time", "1:00:00")
        job.wait_for_steps(2 * STEPS)
        job.requeue()
        problems += report("requeued by hand", job)
        if not given.quick:
            folder = Path(place) / "limited"
            folder.mkdir()
            # Four trials at a time take 160 s; the job is told to end after 120 s.
            job = Job(environment, folder, "--nodes=2", "--time=3:00", "--grace=60", seconds=4.0)
            problems += report("requeued at its time limit", job)
    for problem in problems:
        print(problem)
    print("FAILED" if problems else "passed: submitted, requeued in the middle, finished")
    return 1 if given.check and problems else 0


if __name__ == "__main__":
    sys.exit(main())
