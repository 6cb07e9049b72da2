"""Mutation tests of the trial's state machine and the ledger: prints the changes that survive.

    python tests/stress/mutations.py [--seconds 100]         the missing mutants, for some seconds
    python tests/stress/mutations.py --quick [--check]       those of automl/core/trial.py
    python tests/stress/mutations.py --table [--check]       the stored results

One process collects the tests and learns which test calls which function. For each mutant, a fork
of it changes the code of one function and runs the tests that call it, the fastest first, until
one fails. This takes a fraction of a second; a new Python for each mutant would take several.

Every survivor must be explained in `results/mutations_explained.json`. Tables (`schema.py`) are
built at import; files of every released schema test them.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from mutants import Mutant, mutants_of

from benchmarks.common.bounds import Claim, at_least, at_most, complete, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.common.store import RESULTS

ROOT = Path(__file__).parents[2]
STORED = RESULTS / "mutations.json"
EXPLAINED = RESULTS / "mutations_explained.json"
CODE = ("automl/core/trial.py", "automl/core/events.py", "automl/ledger/*.py")
TESTS = ("tests/automl/core/*.py", "tests/automl/ledger/test_*.py")
NEEDS_SERVER = ("tests/automl/ledger/test_postgres.py",)
QUICK_CODE = ("automl/core/trial.py",)
QUICK_TESTS = ("tests/automl/core/test_*.py",)
QUICK_SECONDS = 240.0
SLOW = 3.0  # seconds; slower tests are left out
CPU_SECONDS = 20  # of the tests of a mutant; after them it counts as hanging
PATIENCE = 10  # it also hangs after these seconds and FACTOR times the usual time of its tests
FACTOR = 4.0


def files(patterns: Sequence[str]) -> list[str]:
    """Paths in the checkout, in order."""
    found = [str(p.relative_to(ROOT)) for pattern in patterns for p in sorted(ROOT.glob(pattern))]
    return [path for path in found if path not in NEEDS_SERVER]


class Functions:
    """The functions of some files; their code can be changed."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.found: dict[str, Any] = {}
        for target in targets:
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


class MutationPlugin:
    """A plugin of pytest that runs mutants instead of tests.

    Args:
        targets: the files to change.
        seconds: no mutant is started after this time.
        kept: results by mutant, and tests by function, of earlier runs.
    """

    def __init__(self, targets: Sequence[str], seconds: float, kept: dict[str, Any]) -> None:
        self.targets = targets
        self.kept = kept
        self.functions = Functions(targets)
        self._until = time.monotonic() + seconds
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember that a test has failed."""
        self._failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Learn which test calls which function, then try the mutants."""
        items = {item.nodeid: item for item in session.items}
        if self.kept.get("tests") != sorted(items):
            self.kept |= {"tests": sorted(items), "calls": self._learn(session.items)}
        mutants = [m for target in self.targets for m in mutants_of(ROOT, target)]
        names = {mutant.name for mutant in mutants}
        results = {name: what for name, what in self.kept["mutants"].items() if name in names}
        self.kept["mutants"] = results
        self.kept["whole"] = False
        for mutant in mutants:
            if time.monotonic() > self._until:
                return True
            if mutant.function in self.functions.found and results.get(mutant.name) != "killed":
                calls = sorted(self.kept["calls"].get(mutant.function, []))
                tests = [(seconds, name) for seconds, name in calls if seconds < SLOW]
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
                raise pytest.UsageError(f"{item.nodeid} fails without a mutant; correct it first")
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
        """Run the tests of a mutant in a fork; one that hangs for `patience` seconds is killed."""
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


def empty() -> dict[str, Any]:
    """No results."""
    return {"mutants": {}, "tried": {}}


def measure(
    code: Sequence[str], tests: Sequence[str], seconds: float, kept: dict[str, Any]
) -> None:
    """Try the missing mutants of some files; the results are added to `kept`."""
    os.chdir(ROOT)
    import torch

    torch.set_num_threads(1)
    plugin = MutationPlugin(files(code), seconds, kept)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=0"]
    status = pytest.main([*options, *files(tests)], [plugin])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(int(status))


def survivors(kept: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Mutants that no test notices, each with its explanation, or "" without one."""
    explained = json.loads(EXPLAINED.read_text()) if EXPLAINED.exists() else {}
    for name, what in kept["mutants"].items():
        if what != "killed":
            yield name, explained.get(name, "")


def claims(kept: dict[str, Any]) -> list[Claim]:
    """Every mutant was tried, and every survivor is explained."""
    count = len(kept["mutants"])
    unexplained = [name for name, why in survivors(kept) if not why]
    return [
        at_least("mutants tried", count or None, 1),
        complete("every mutant tried", [] if kept.get("whole") else ["some"]),
        at_most("survivors without an explanation", len(unexplained) if count else None, 0),
    ]


def main() -> int:
    """Try the missing mutants, store the results, and print the survivors."""
    parser = benchmark_parser(__doc__, "the mutants of automl/core/trial.py")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no mutant after it")
    given = parser.parse_args()
    kept = empty()
    if STORED.exists() and not given.quick:
        kept = json.loads(STORED.read_text())
    if given.quick:
        measure(QUICK_CODE, QUICK_TESTS, min(given.seconds, QUICK_SECONDS), kept)
    elif not given.table:
        measure(CODE, TESTS, given.seconds, kept)
        STORED.write_text(json.dumps(kept, indent=0))
    for name, why in survivors(kept):
        print(f"{kept['mutants'][name]}: {name}" + (f"\n    {why}" if why else ""))
    print(dict(Counter(kept["mutants"].values())))
    return conclude(claims(kept)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
