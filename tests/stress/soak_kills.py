"""Kills controllers, workers and nodes, and counts what that has cost.

The ledger must know everything that others have seen.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import POINTS
from soak_sweeps import STEPS, facts, launch, make_spec

from automl.core.trial import Trial
from automl.ledger import Ledger
from workers.protocol import Report

PATIENCE = 300.0  # seconds without a new attempt
CONTROLLER_TRIALS = 12
RAY_TRIALS = 8


@dataclass
class SoakCount:
    """Kills, and what was lost or counted twice."""

    kind: str
    kills: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    sweeps: int = 0
    ended: int = 0
    problems: list[str] = field(default_factory=list)

    def check(self, ledger: Ledger, name: str) -> None:
        """Compare the ledger with everything that was acknowledged so far."""
        trials = ledger.trials(name)
        latest: dict[int, list[Any]] = {}
        for line in _lines(Path(ledger.name).parent / f"{name}.acknowledged"):
            number, *fact = json.loads(line)
            latest[number] = fact
        stored = {  # with those of superseded attempts
            json.dumps([one.trial, one.attempt, one.sequence, one.step, dict(one.metrics)])
            for one in ledger.events(name)
            if isinstance(one, Report)
        }
        for number, fact in latest.items():
            self._compare(name, number, fact, trials, stored)
        if [trial.number for trial in trials] != list(range(len(trials))):
            self._problem("doubled", f"{name}: numbers {[trial.number for trial in trials]}")

    def finish(self, ledger: Ledger, name: str, num_trials: int) -> None:
        """Check a sweep at its end: every trial and report once, no attempt run twice."""
        self.check(ledger, name)
        self.sweeps += 1
        trials = ledger.trials(name)
        ended = all(trial.state.finished for trial in trials)
        if ended and ledger.snapshot(name).state == "finished":
            self.ended += 1
        else:
            self.problems.append(f"{name} has not ended")
        if len(trials) != num_trials:
            self._problem("doubled", f"{name}: {len(trials)} trials")
        for trial in trials:
            steps = [report.step for report in trial.reports]
            if steps != list(range(STEPS)) or str(trial.state) != "completed":
                self._problem("doubled", f"{name}: {trial}")
        marks = _lines(ledger.files(name).path / "marks")
        for mark, times in Counter(line.rsplit(" ", 1)[0] for line in marks).items():
            number, attempt = map(int, mark.split())
            if times > 1:
                self._problem("doubled", f"{name}: attempt {mark} ran {times} times")
            if trials[number].attempts < attempt:
                self._problem("lost", f"{name}: attempt {mark} ran and is not in the ledger")
        self.acknowledged += len(_lines(Path(ledger.name).parent / f"{name}.acknowledged"))

    def row(self) -> dict[str, Any]:
        """The row of the results."""
        return {**vars(self), "kills": dict(self.kills), "at": time.strftime("%Y-%m-%d")}

    def _compare(
        self, name: str, number: int, fact: list[Any], trials: list[Trial], stored: set[str]
    ) -> None:
        if number >= len(trials):
            self._problem("lost", f"{name}/{number} is gone")
            return
        params, attempts, reports, final = fact
        kept = json.loads(json.dumps(facts(trials[number])))
        if kept[0] != params or kept[1] < attempts or (final and kept[3] != final):
            self._problem("lost", f"{name}/{number}: {fact} became {kept}")
        if missing := [report for report in reports if json.dumps([number, *report]) not in stored]:
            self._problem("lost", f"{name}/{number}: reports {missing} are gone")

    def _problem(self, which: str, text: str) -> None:
        setattr(self, which, getattr(self, which) + 1)
        self.problems.append(text[:2000])


def soak_controllers(kills: int, seed: int, folder: Path) -> SoakCount:
    """Kill one controller after another at the failpoints in turn; each sweep outlives about 20."""
    rng = random.Random(seed)
    count = SoakCount("controllers")
    ledger = Ledger.open(folder, create=True)
    points = list(POINTS)
    while count.kills.total() < kills:
        name = ledger.create_sweep(make_spec(f"c{seed}-{count.sweeps}", CONTROLLER_TRIALS))
        for _ in range(20):
            point = points[count.kills.total() % len(points)]
            child = launch(folder, name, point, rng.randrange(3 if point != "finished" else 1))
            child.join()
            if child.exitcode == -signal.SIGKILL:
                count.kills[point] += 1
            elif child.exitcode != 0:
                count.problems.append(f"{name} at {point}: exit status {child.exitcode}")
            count.check(ledger, name)
            if count.kills.total() >= kills or ledger.snapshot(name).state == "finished":
                break
        launch(folder, name).join()
        count.finish(ledger, name, CONTROLLER_TRIALS)
    return count


def soak_workers(kills: int, seed: int, folder: Path) -> SoakCount:
    """Kill Ray workers of a controller at random moments of their attempts."""
    count = SoakCount("workers")
    os.environ["SOAK_PAUSE"] = "0.1"

    def strike(mark: str, rng: random.Random) -> None:
        if rng.random() < 0.85:
            time.sleep(rng.random() * 0.5)
            with suppress(ProcessLookupError):
                os.kill(int(mark.split()[2]), signal.SIGKILL)
                count.kills["worker"] += 1

    _soak_ray(count, kills, seed, folder, None, strike)
    return count


def soak_nodes(kills: int, seed: int, folder: Path) -> SoakCount:
    """Remove nodes of a Ray cluster while they run a trial; each time another one joins."""
    from ray.cluster_utils import Cluster

    from automl.dispatch.ray.session import environment

    count = SoakCount("nodes")
    os.environ["SOAK_PAUSE"] = "0.3"
    with environment():
        head = {"num_cpus": 0, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]

        def strike(mark: str, rng: random.Random) -> None:
            time.sleep(rng.random())
            cluster.remove_node(nodes.pop(rng.randrange(2)), allow_graceful=False)
            count.kills["node"] += 1
            nodes.append(cluster.add_node(num_cpus=1))

        _soak_ray(count, kills, seed, folder, cluster.address, strike)
        cluster.shutdown()
    return count


def _soak_ray(
    count: SoakCount,
    kills: int,
    seed: int,
    folder: Path,
    address: str | None,
    strike: Callable[[str, random.Random], None],
) -> None:
    """Run sweeps on Ray until there were enough kills; `strike` is called at each new attempt."""
    rng = random.Random(seed)
    ledger = Ledger.open(folder, create=True)
    while count.kills.total() < kills:
        spec = make_spec(f"{count.kind[0]}{seed}-{count.sweeps}", RAY_TRIALS, workers=2)
        name = ledger.create_sweep(spec)
        child = launch(folder, name, dispatcher="ray", ray_address=address)
        known, last = 0, time.monotonic()
        while child.is_alive():
            time.sleep(0.02)
            marks = _lines(ledger.files(name).path / "marks")
            if len(marks) > known:
                known, last = len(marks), time.monotonic()
                if count.kills.total() < kills:
                    strike(marks[-1], rng)
            if time.monotonic() - last > PATIENCE:
                count.problems.append(f"{name}: no attempt has started for {PATIENCE:.0f} s")
                child.terminate()
                child.join()
        child.join()
        if child.exitcode != 0:
            count.problems.append(f"{name}: exit status {child.exitcode}")
        count.finish(ledger, name, RAY_TRIALS)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
