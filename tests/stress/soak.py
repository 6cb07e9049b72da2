"""Kill controllers, workers and nodes, over and over, and count what was lost.

    python tests/stress/soak.py --quick            # a minute: every failpoint twice
    python tests/stress/soak.py                    # 500 controllers, 200 others; goes on where it was interrupted
    python tests/stress/soak.py --only controllers --kills 500
    python tests/stress/soak.py --table            # print the table of what was measured
    python tests/stress/soak.py --check            # fail (status 1) unless the table holds what is promised

What is acknowledged is written down by others than the ledger: what the controller showed after its commits, and
which attempts workers began. After each kill, and at the end of each sweep, the ledger must know all of it.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

from faults import POINTS  # noqa: E402

from automl.core.budget import Budget  # noqa: E402
from automl.core.goals import parse_goals  # noqa: E402
from automl.core.spec import SweepSpec  # noqa: E402
from automl.core.trial import Trial  # noqa: E402
from automl.ledger import Ledger  # noqa: E402
from search_spaces import Choice, Float, Space  # noqa: E402
from workers.context import Context  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "soak.jsonl"
SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True, default=1e-3),
    Choice("optimizer", ["sgd", "adam"], default="adam"),
)
STEPS = 4
_CONTEXT = multiprocessing.get_context("forkserver")


def make_spec(name: str, trials: int, workers: int = 1, max_retries: int = 1000) -> SweepSpec:
    goals = parse_goals("minimize loss")
    budget = Budget(trials=trials)
    return SweepSpec(
        name,
        SPACE,
        goals,
        budget=budget,
        suggester="sobol",
        workers=workers,
        max_retries=max_retries,
    )


def objective(trial: Context) -> dict[str, float]:
    """Leaves a mark for each attempt that begins; reports four times."""
    marks = Path(trial.folder).parents[1] / "marks"
    with marks.open("a") as file:
        file.write(f"{trial.number} {trial.assignment.attempt} {os.getpid()}\n")
    pause = float(os.environ.get("SOAK_PAUSE", "0.005"))
    for step in range(STEPS):
        time.sleep(pause)
        trial.report(step=step, loss=trial.params["lr"] + 1.0 / (step + 1))
    return {"loss": trial.params["lr"] + 1.0 / STEPS}


# ---------------------------------------------------------------------- the controller that is killed


def acknowledge(file: Path) -> Callable[[Any], None]:
    """What the controller shows is appended to a file: a person, or a program, has seen it."""
    told: dict[int, str] = {}

    def show(snapshot: Any) -> None:
        for trial in snapshot.trials:
            fact = json.dumps([trial.number, *seen(trial)])
            if told.get(trial.number) != fact:
                told[trial.number] = fact
                with file.open("a") as log:
                    log.write(fact + "\n")

    return show


def seen(trial: Trial) -> list[Any]:
    """What is known of a trial: parameters, attempts, reports, and all of it once it has ended."""
    reports = [[p.attempt, p.sequence, p.step, dict(p.metrics)] for p in trial.reports]
    final = repr(trial) if trial.state.finished else ""
    return [dict(trial.params), trial.attempts, reports, final]


def control(store: str, name: str, point: str, skip: int, address: str | None) -> None:
    """A controller's whole life, in a process of its own."""
    from automl import sweeps

    gc.freeze()  # each trial collects garbage before it measures memory

    if address:
        import automl.dispatch.ray.dispatcher  # before the wrappers
    if point:
        from faults import arm

        arm(point, skip)
    ledger = Ledger.open(store)
    show = acknowledge(Path(store) / f"{name}.acknowledged")
    snapshot = sweeps.run(
        ledger.spec(name),
        ledger=ledger,
        objective=objective,
        dispatcher="ray" if address else "inline",
        ray_address=address,
        on_change=show,
        resume=True,
    )
    ledger.close()
    if point == "exporting":
        export(snapshot, Path(store) / f"{name}.json")
    os._exit(0 if snapshot.state == "finished" else 1)


def export(snapshot: Any, path: Path) -> None:
    """Write the sweep's report, and die between the writing and the renaming."""
    from automl.report.page import save

    def die(self: Path, target: Path) -> Path:
        os.kill(os.getpid(), signal.SIGKILL)
        return target

    Path.replace = die  # type: ignore[method-assign,assignment]
    save(snapshot, path.with_suffix(".html"))


def launch(*arguments: Any) -> Any:
    preload = [
        "torch",
        "workers.run",
        "workers.device.peak_memory",
        "automl.sweeps",
        "automl.suggesters.sobol",
        "faults",
        "automl.report.page",
    ]
    _CONTEXT.set_forkserver_preload(preload)
    process = _CONTEXT.Process(target=control, args=arguments)
    process.start()
    return process


# ---------------------------------------------------------------------- what must hold


def every_report(file: Path, sweep: str) -> set[str]:
    """Every report that a SQLite ledger holds, those of attempts that a later one has superseded too."""
    query = (
        "SELECT trial, attempt, sequence, step, metrics FROM reports JOIN sweeps ON sweeps.id = reports.sweep "
        "WHERE sweeps.name = ?"
    )
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(query, (sweep,)).fetchall()
    return {json.dumps([*row[:4], json.loads(row[4])]) for row in rows}


@dataclass
class Count:
    """What came of the kills."""

    kind: str
    kills: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    sweeps: int = 0
    ended: int = 0
    problems: list[str] = field(default_factory=list)

    def check(self, ledger: Ledger, name: str) -> None:
        """Compare the ledger with what was acknowledged so far."""
        trials = ledger.trials(name)
        file = Path(ledger.name).parent / f"{name}.acknowledged"
        lines = file.read_text().splitlines() if file.exists() else []
        latest: dict[int, list[Any]] = {}
        for line in lines:
            number, *fact = json.loads(line)
            latest[number] = fact
        stored = every_report(Path(ledger.name), name)
        for number, fact in latest.items():
            self.compare(name, number, fact, trials, stored)
        if [trial.number for trial in trials] != list(range(len(trials))):
            self.problem("doubled", f"{name}: numbers {[trial.number for trial in trials]}")

    def compare(
        self, name: str, number: int, fact: list[Any], trials: list[Trial], stored: set[str]
    ) -> None:
        if number >= len(trials):
            self.problem("lost", f"{name}/{number} is gone")
            return
        params, attempts, reports, final = fact
        kept = json.loads(json.dumps(seen(trials[number])))
        if kept[0] != params or kept[1] < attempts or (final and kept[3] != final):
            self.problem("lost", f"{name}/{number}: {fact} became {kept}")
        if missing := [report for report in reports if json.dumps([number, *report]) not in stored]:
            self.problem("lost", f"{name}/{number}: reports {missing} are gone")

    def finish(self, ledger: Ledger, name: str, num_trials: int) -> None:
        """A sweep has ended: every trial once, every report once, no attempt run twice."""
        self.check(ledger, name)
        self.sweeps += 1
        trials = ledger.trials(name)
        if ledger.snapshot(name).state == "finished" and all(
            trial.state.finished for trial in trials
        ):
            self.ended += 1
        else:
            self.problems.append(f"{name} has not ended")
        if len(trials) != num_trials:
            self.problem("doubled", f"{name}: {len(trials)} trials")
        for trial in trials:
            if [p.step for p in trial.reports] != list(range(STEPS)) or str(
                trial.state
            ) != "completed":
                self.problem("doubled", f"{name}: {trial}")
        marks = Counter(
            line.rsplit(" ", 1)[0]
            for line in (ledger.folder(name) / "marks").read_text().splitlines()
        )
        for mark, times in marks.items():
            number, attempt = map(int, mark.split())
            if times > 1:
                self.problem("doubled", f"{name}: attempt {mark} ran {times} times")
            if trials[number].attempts < attempt:
                self.problem("lost", f"{name}: attempt {mark} ran and is not known")
        file = Path(ledger.name).parent / f"{name}.acknowledged"
        self.acknowledged += len(file.read_text().splitlines())

    def watch(self, child: Any, name: str, last: float) -> None:
        """End a controller in whose sweep nothing has happened since `last`, for too long."""
        if time.monotonic() - last > 300:
            self.problems.append(f"{name}: nothing has happened for five minutes")
            child.terminate()
            child.join()

    def end(self, child: Any, ledger: Ledger, name: str, trials: int) -> None:
        """Wait for a controller, and count what its sweep has come to."""
        child.join()
        if child.exitcode != 0:
            self.problems.append(f"{name}: exit status {child.exitcode}")
        self.finish(ledger, name, trials)

    def problem(self, which: str, text: str) -> None:
        setattr(self, which, getattr(self, which) + 1)
        self.problems.append(text[:2000])

    def row(self) -> dict[str, Any]:
        return {**vars(self), "kills": dict(self.kills), "at": time.strftime("%Y-%m-%d")}


def soak_controllers(kills: int, seed: int, folder: Path) -> Count:
    """Kill one controller after the other at a failpoint; a sweep of 12 trials outlives about twenty of them."""
    rng, count = random.Random(seed), Count("controllers")
    ledger = Ledger.open(folder, create=True)
    points = list(POINTS)
    while count.kills.total() < kills:
        name = ledger.create_sweep(make_spec(f"c{seed}-{count.sweeps}", 12))
        for _ in range(20):
            point = points[count.kills.total() % len(points)]
            child = launch(
                str(folder), name, point, rng.randrange(3 if point != "finished" else 1), None
            )
            child.join()
            if child.exitcode == -signal.SIGKILL:
                count.kills[point] += 1
            elif child.exitcode != 0:
                count.problems.append(f"{name} at {point}: exit status {child.exitcode}")
            count.check(ledger, name)
            if count.kills.total() >= kills or ledger.snapshot(name).state == "finished":
                break
        last = launch(str(folder), name, "", 0, None)
        last.join()
        count.finish(ledger, name, 12)
    return count


def soak_workers(kills: int, seed: int, folder: Path) -> Count:
    """One controller with two Ray workers; whatever worker runs is killed at a random moment."""
    rng, count = random.Random(seed), Count("workers")
    ledger = Ledger.open(folder, create=True)
    os.environ["SOAK_PAUSE"] = "0.1"
    while count.kills.total() < kills:
        trials = 8
        name = ledger.create_sweep(make_spec(f"w{seed}-{count.sweeps}", trials, workers=2))
        child = launch_ray(folder, name, "local")
        marks, known, last = ledger.folder(name) / "marks", 0, time.monotonic()
        while child.is_alive():
            time.sleep(0.02)
            lines = marks.read_text().splitlines() if marks.exists() else []
            if len(lines) > known:
                known, last = len(lines), time.monotonic()
                if rng.random() < 0.85 and count.kills.total() < kills:
                    time.sleep(rng.random() * 0.5)
                    pid = int(lines[-1].split()[2])
                    try:
                        os.kill(pid, signal.SIGKILL)
                        count.kills["worker"] += 1
                    except ProcessLookupError:
                        pass
            count.watch(child, name, last)
        count.end(child, ledger, name, trials)
    return count


def soak_nodes(kills: int, seed: int, folder: Path) -> Count:
    """A cluster of a head and two nodes of one worker each; one that runs a trial is lost, and another one joins."""
    from ray.cluster_utils import Cluster

    from automl.dispatch.ray.session import environment

    rng, count = random.Random(seed), Count("nodes")
    ledger = Ledger.open(folder, create=True)
    os.environ["SOAK_PAUSE"] = "0.3"
    with environment():
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        while count.kills.total() < kills:
            trials = 8
            name = ledger.create_sweep(make_spec(f"n{seed}-{count.sweeps}", trials, workers=2))
            child = launch_ray(folder, name, cluster.address)
            marks, known, last = ledger.folder(name) / "marks", 0, time.monotonic()
            while child.is_alive():
                time.sleep(0.02)
                lines = marks.read_text().splitlines() if marks.exists() else []
                if len(lines) > known and count.kills.total() < kills:
                    known, last = len(lines), time.monotonic()
                    time.sleep(rng.random())
                    cluster.remove_node(nodes.pop(rng.randrange(2)), allow_graceful=False)
                    count.kills["node"] += 1
                    nodes.append(cluster.add_node(num_cpus=1))
                count.watch(child, name, last)
            count.end(child, ledger, name, trials)
        cluster.shutdown()
    return count


def launch_ray(folder: Path, name: str, address: str) -> Any:
    """A controller whose Ray is not a daemonic child, so that it ends with it."""
    process = _CONTEXT.Process(target=control_ray, args=(str(folder), name, address), daemon=False)
    process.start()
    return process


def control_ray(store: str, name: str, address: str) -> None:
    from automl import sweeps

    ledger = Ledger.open(store)
    show = acknowledge(Path(store) / f"{name}.acknowledged")
    where = None if address == "local" else address
    snapshot = sweeps.run(
        ledger.spec(name),
        ledger=ledger,
        objective=objective,
        ray_address=where,
        on_change=show,
        resume=True,
    )
    ledger.close()
    os._exit(0 if snapshot.state == "finished" else 1)


def measure_resume(num_trials: int) -> dict[str, Any]:
    """Seconds from the start of a process that resumes a sweep of so many trials to the first new suggestion."""
    from automl.core.events import Begun, Ended, Proposed
    from automl.core.trial import TrialState
    from workers.protocol import Ending, Outcome, Report

    folder = Path(tempfile.mkdtemp(prefix="automl-soak-"))
    try:
        ledger = Ledger.open(folder, create=True)
        name = ledger.create_sweep(make_spec("large", num_trials + 1))
        recorder = ledger.acquire(name)
        rng = random.Random(0)
        for number in range(num_trials):
            params = {"lr": 10 ** rng.uniform(-5, -1), "optimizer": rng.choice(["sgd", "adam"])}
            recorder.apply(Proposed(number, params, "sobol"))
            recorder.apply(Begun(number, 1))
            for step in range(10):
                recorder.apply(
                    Report(number, 1, step, step, {"loss": rng.random(), "bleu": 1.0}, 1.0)
                )
            recorder.apply(
                Ended(
                    Outcome(number, 1, Ending.COMPLETED, {"loss": rng.random()}),
                    TrialState.COMPLETED,
                )
            )
            if number % 500 == 0:
                recorder.commit()
        recorder.commit(10.0, state="interrupted")
        ledger.close()
        begun = time.monotonic()
        launch(str(folder), name, "dispatched", 0, None).join()
        return {
            "kind": "resume",
            "trials": num_trials,
            "reports": 10 * num_trials,
            "seconds": time.monotonic() - begun,
        }
    finally:
        shutil.rmtree(folder)


# ---------------------------------------------------------------------- the table


def keep(row: dict[str, Any]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")


def totals() -> dict[str, dict[str, Any]]:
    """The rows of each kind added up; of the times to resume the longest."""
    found: dict[str, dict[str, Any]] = {}
    for line in RESULTS.read_text().splitlines() if RESULTS.exists() else []:
        row = json.loads(line)
        if row["kind"] == "resume":
            before = found.get("resume", row)
            found["resume"] = max(before, row, key=lambda r: r["seconds"])
            continue
        total = found.setdefault(
            row["kind"], {**dict.fromkeys(FIELDS, 0), "kills": Counter(), "problems": []}
        )
        total["kills"].update(row["kills"])
        total["problems"] += row["problems"]
        for name in FIELDS:
            total[name] += row[name]
    return found


FIELDS = ("acknowledged", "lost", "doubled", "sweeps", "ended")


def table() -> str:
    lines = [
        "| killed | kills | acknowledged events | lost | counted twice | sweeps | ended |",
        "|---|---|---|---|---|---|---|",
    ]
    found = totals()
    for kind, total in found.items():
        if kind != "resume":
            cells = [kind, total["kills"].total(), *(total[name] for name in FIELDS)]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines.append("")
    for kind, total in found.items():
        if kind != "resume":
            lines.append(
                f"{kind}: "
                + ", ".join(f"{point} {n}" for point, n in sorted(total["kills"].items()))
            )
    if "resume" in found:
        row = found["resume"]
        lines.append(
            f"resume with {row['trials']} trials and {row['reports']} reports: {row['seconds']:.1f} s at most"
        )
    return "\n".join(lines)


def broken() -> list[str]:
    """What the table does not hold of what is promised."""
    found = totals()
    wrong = [
        f"{kind}: {text}"
        for kind, total in found.items()
        if kind != "resume"
        for text in total["problems"]
    ]
    if found.get("controllers", {"kills": Counter()})["kills"].total() < 500:
        wrong.append("fewer than 500 controllers were killed")
    others = sum(found[kind]["kills"].total() for kind in ("workers", "nodes") if kind in found)
    if others < 200:
        wrong.append(f"fewer than 200 workers and nodes were killed: {others}")
    if found.get("resume", {"seconds": 99.0})["seconds"] >= 10:
        wrong.append("resuming takes 10 s or more")
    return wrong


def run(kind: str, kills: int, seed: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="automl-soak-"))
    try:
        soak = {"controllers": soak_controllers, "workers": soak_workers, "nodes": soak_nodes}[kind]
        count = soak(kills, seed, folder)
        keep(count.row())
        print(
            f"{kind}: {count.kills.total()} kills, {count.lost} lost, {count.doubled} doubled",
            flush=True,
        )
        for problem in count.problems:
            print(f"  {problem}")
    finally:
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--only", choices=["controllers", "workers", "nodes", "resume"])
    parser.add_argument("--kills", type=int)
    given = parser.parse_args()
    if not given.table and not given.check:
        wanted = {"controllers": 500, "workers": 180, "nodes": 20}
        for kind, goal in wanted.items():
            if given.only not in (None, kind):
                continue
            done = totals().get(kind, {"kills": Counter()})["kills"].total()
            goal = (2 * len(POINTS) if kind == "controllers" else 4) if given.quick else goal
            left = given.kills or goal - (0 if given.quick else done)
            while left > 0:  # in pieces, so that an interruption loses little
                piece = min(left, 50 if kind == "controllers" else 10)
                run(kind, piece, time.time_ns() % 1_000_000)
                left -= piece
        if given.only in (None, "resume"):
            keep(measure_resume(10_000))
    print(table())
    if given.check:
        wrong = broken()
        print("\n".join(wrong) or "all of it holds")
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
