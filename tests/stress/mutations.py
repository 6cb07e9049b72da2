"""A mutation run over the trial's state machine and the ledger: changes that no test notices are printed.

    python tests/stress/mutations.py --seconds 100        # a piece; goes on where the last one ended
    python tests/stress/mutations.py --table              # what was found; status 1 unless each survivor is explained

One process collects the tests, and learns which test calls which function; for each mutant a fork of it changes the
code of one function and runs the tests that call it, the fastest first, until one fails. That costs a mutant a fraction
of a second, where starting Python for each takes several. Tables (`schema.py`) are made when they are imported, and
have files of every released schema as their test. Survivors that change nothing that matters are explained in
`results/mutations_explained.json`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

import pytest  # noqa: E402
from mutants import Mutant, mutants_of  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "mutations.json"
EXPLAINED = RESULTS.with_name("mutations_explained.json")
TARGETS = [
    "automl/core/trial.py",
    "automl/core/events.py",
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("automl/ledger/*.py")),
]
TESTS = [
    "tests/automl/core/test_events.py",
    "tests/automl/ledger/test_rows.py",
    "tests/automl/ledger/test_acquire.py",
    "tests/automl/ledger/test_lease.py",
    "tests/automl/ledger/test_memory.py",
    "tests/automl/ledger/test_recorder.py",
    "tests/automl/ledger/test_commands_and_deletion.py",
    "tests/automl/ledger/test_ledger.py",
    "tests/automl/ledger/test_migrations.py",
    "tests/automl/ledger/test_store_errors.py",
    "tests/automl/ledger/test_disks.py",
]
SLOW = 3.0  # seconds of a test that is left out
CPU_SECONDS = 20  # of a mutant's tests, after which it hangs
PATIENCE, FACTOR = (
    10,
    4.0,
)  # it hangs, too, after ten seconds and four times what its tests took without it


class Functions:
    """The functions of the targets, and how to change their code."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        for target in TARGETS:
            module = importlib.import_module(
                target.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
            )
            for kind in (module, *(v for v in vars(module).values() if isinstance(v, type))):
                if getattr(kind, "__module__", module.__name__) == module.__name__:
                    self._collect(kind, target, module.__name__)

    def _collect(self, kind: Any, target: str, module: str) -> None:
        for value in list(vars(kind).values()):
            inner = (
                getattr(value, "fget", None)
                or getattr(value, "__func__", None)
                or getattr(value, "func", None)
            )
            function = inner or value
            while hasattr(function, "__wrapped__"):
                function = function.__wrapped__
            if hasattr(function, "__code__") and function.__module__ == module:
                self.found[f"{target}:{function.__code__.co_qualname}"] = function

    def change(self, mutant: Mutant) -> None:
        """Give the function the mutant's code."""
        self.found[mutant.function].__code__ = mutant.code()


class Runner:
    """A plugin of pytest that runs mutants instead of tests.

    Args:
        seconds: after which no further mutant is begun.
        kept: results by mutant, and the tests by function, of earlier pieces.
    """

    def __init__(self, seconds: float, kept: dict[str, Any]) -> None:
        self._until = time.monotonic() + seconds
        self.kept, self._failed = kept, False
        self.functions = Functions()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember that a test has failed."""
        self._failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Learn which test calls what, then try the mutants."""
        items = {item.nodeid: item for item in session.items}
        if self.kept.get("tests") != sorted(items):
            self.kept |= {"tests": sorted(items), "calls": self._learn(session.items)}
        mutants = [m for target in TARGETS for m in mutants_of(ROOT, target)]
        names = {mutant.name for mutant in mutants}
        self.kept["mutants"] = {
            name: what for name, what in self.kept["mutants"].items() if name in names
        }
        for mutant in mutants:
            if time.monotonic() > self._until:
                return True
            if (
                mutant.function in self.functions.found
                and self.kept["mutants"].get(mutant.name) != "killed"
            ):
                tests = [
                    test
                    for test in sorted(self.kept["calls"].get(mutant.function, []))
                    if test[0] < SLOW
                ]
                patience = PATIENCE + int(FACTOR * sum(seconds for seconds, _ in tests))
                self._judge(mutant, [items[name] for _, name in tests], patience)
        self.kept["whole"] = True
        return True

    def _judge(self, mutant: Mutant, items: list[pytest.Item], patience: int) -> None:
        tried = f"{mutant.name} {len(items)}"
        if self.kept["tried"].get(mutant.name) != tried:
            self.kept["mutants"][mutant.name] = (
                self._try(mutant, items, patience) if items else "not called"
            )
            self.kept["tried"][mutant.name] = tried

    def _learn(self, items: list[pytest.Item]) -> dict[str, list[tuple[float, str]]]:
        """The tests that call each function, and how long each takes."""
        codes: dict[CodeType, str] = {
            function.__code__: name for name, function in self.functions.found.items()
        }
        calls: dict[str, list[tuple[float, str]]] = {}
        for item in items:
            called: set[str] = set()

            def see(frame: FrameType, event: str, _: Any, called: set[str] = called) -> None:
                if event == "call" and frame.f_code in codes:
                    called.add(codes[frame.f_code])

            begun = time.process_time()
            threading.setprofile(see)
            sys.setprofile(see)
            failed = self._fails(item)
            sys.setprofile(None)
            threading.setprofile(None)
            if failed:
                raise pytest.UsageError(f"{item.nodeid} fails without any change")
            for name in called:
                calls.setdefault(name, []).append(
                    (round(time.process_time() - begun, 3), item.nodeid)
                )
        return calls

    def _fails(self, item: pytest.Item) -> bool:
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return self._failed

    def _try(self, mutant: Mutant, items: list[pytest.Item], patience: int) -> str:
        """What comes of a mutant, found out in a fork; one that hangs for so many seconds is noticed."""
        child = os.fork()
        if child == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            signal.alarm(patience)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            self.functions.change(mutant)
            os._exit(1 if any(self._fails(item) for item in items) else 0)
        _, status = os.waitpid(child, 0)
        return "survived" if status == 0 else "killed"


def load() -> dict[str, Any]:
    """What earlier pieces found."""
    empty: dict[str, Any] = {"mutants": {}, "tried": {}}
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else empty


def survivors(kept: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Mutants that no test notices, with the explanation of each, "" where there is none."""
    explained = json.loads(EXPLAINED.read_text()) if EXPLAINED.exists() else {}
    for name, what in kept["mutants"].items():
        if what != "killed":
            yield name, explained.get(name, "")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    kept = load()
    if not given.table:
        os.chdir(ROOT)
        import torch

        torch.set_num_threads(1)
        status = pytest.main(
            ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=0", *TESTS],
            [Runner(given.seconds, kept)],
        )
        RESULTS.write_text(json.dumps(kept, indent=0))
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return int(status)
    left = list(survivors(kept))
    for name, why in left:
        print(f"{kept['mutants'][name]}: {name}" + (f"\n    {why}" if why else ""))
    print(
        dict(Counter(kept["mutants"].values())),
        "all tried" if kept.get("whole") else "not all tried yet",
    )
    return 0 if kept.get("whole") and all(why for _, why in left) else 1


if __name__ == "__main__":
    sys.exit(main())
