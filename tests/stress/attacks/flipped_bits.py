"""Bits that turn over on a disk: in a ledger, its log, its record of commits and its backups."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from attacks.frame import attack
from automl.core.events import Begun, Command, Ended, Proposed
from automl.core.goals import Goal
from automl.core.spec import SweepSpec
from automl.core.trial import TrialState
from automl.errors import StoreError
from automl.ledger import Ledger, backup
from automl.ledger.check import check
from automl.ledger.database import FILE_NAME
from automl.ledger.repair import repair
from automl.ledger.store_errors import backups_of
from search_spaces import Float, Space
from workers.protocol import Ending, Outcome, Report, Started

NUM_TRIALS = 9
SPACE = Space(Float("lr", 1e-5, 1e-1, log=True))


def write(folder: Path) -> Ledger:
    """A store with 9 trials, 4 of them only in the log; a backup is 2 trials behind. It is open."""
    ledger = Ledger.open(folder, create=True)
    ledger.create_sweep(SweepSpec("test", SPACE, (Goal.parse("minimize loss"),)))
    recorder = ledger.acquire("test")
    recorder._backups = None
    ledger.send("test", Command("enqueue", {"lr": 0.01}))
    for number in range(NUM_TRIALS):
        if number == NUM_TRIALS - 4:
            with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if number in (3, 5, 7):
            backup.back_up(folder / FILE_NAME)
        outcome = Outcome(number, 1, Ending.COMPLETED, {"loss": 1 / (number + 3)}, seconds=2.0)
        for events in (
            (Proposed(number, {"lr": 0.1 / (number + 3)}, "bayes", 1.0), Begun(number, 1, 1.5)),
            (Started(number, 1, "host:7"), Report(number, 1, 0, 1, {"loss": 1 / (number + 2)}, 1)),
            (Ended(outcome, TrialState.COMPLETED, at=3.5),),
        ):
            for event in events:
                recorder.apply(event)
            recorder.commit(float(number))
        if number == NUM_TRIALS - 5:
            recorder._cache()
    return ledger


def make_templates(folder: Path) -> list[Path]:
    """A store that is closed, and one whose log is in use; both hold the same."""
    closed, used = folder / "closed", folder / "used"
    ledger = write(closed)
    shutil.copytree(closed, used)
    (used / f"{FILE_NAME}-shm").unlink()
    ledger.close()
    return [closed, used]


def seen(folder: Path) -> str:
    """What people are shown of a store."""
    ledger = Ledger.open(folder, readonly=True)
    try:
        sweeps = [(info.name, info.num_trials, info.seconds) for info in ledger.sweeps()]
        shown = (sweeps, ledger.trials("test"), list(ledger.events("test")), ledger.spec("test"))
        cached = ledger.snapshot("test", condensed=True)
        return repr((*shown, ledger.commands("test"), cached.trials, cached.best))
    finally:
        ledger.close()


def flip(folder: Path, template: Path, rng: random.Random) -> str:
    """Copy the store with one bit turned over; the name of the file."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder)
    ledger = folder / FILE_NAME
    beside = [folder / f"{FILE_NAME}{end}" for end in ("-wal", "-head")]
    files = [ledger, ledger, *beside, *backups_of(ledger)]  # the ledger twice as often
    file = rng.choice([path for path in files if path.exists() and path.stat().st_size])
    data = bytearray(file.read_bytes())
    place = rng.randrange(8 * len(data))
    data[place // 8] ^= 1 << place % 8
    file.write_bytes(data)
    return str(file.relative_to(folder))


def flips(folder: Path, count: int, seed: int) -> str:
    """Turn over so many bits, one at a time; what was found of them."""
    rng = random.Random(seed)
    templates = make_templates(folder)
    truth = seen(templates[0])
    found: Counter[str] = Counter()
    for _ in range(count):
        store = folder / "store"
        file = flip(store, rng.choice(templates), rng)
        found[one_flip(store, truth, file)] += 1
    assert found["refused"], found
    return ", ".join(f"{amount} {kind}" for kind, amount in sorted(found.items()))


def one_flip(store: Path, truth: str, file: str) -> str:
    """Read, resume and repair a store with one flipped bit."""
    good = {path: path.read_bytes() for path in backups_of(store / FILE_NAME)}
    kind = "changed nothing"
    try:
        assert seen(store) == truth, f"{file}: another value was shown"
        ledger = Ledger.open(store)
        ledger.acquire("test")
        ledger.close()
        assert seen(store) == truth, f"{file}: another value was shown after a resume"
    except StoreError as error:
        kind = "refused" if "automl repair" in str(error) else f"refused with {error}"
        kept = {path.read_bytes() for path in backups_of(store / FILE_NAME)}
        assert kept == set(good.values()), f"{file}: damage replaced a backup"
    if kind != "changed nothing":
        assert kind == "refused", kind
        assert check(store), f"{file}: check did not find it"
        done = repair(store)
        now = seen(store)
        if now != truth:
            assert done.lost, f"{file}: repaired to other values in silence"
            kind = "refused, repaired in part"
    return kind


@attack("0 wrong values shown, 0 backups replaced by damage, what can be repaired is", quick=True)
def a_few_flipped_bits(folder: Path) -> str:
    return flips(folder, 100, 0)  # a tenth is refused: with fewer, chance may find none


@attack(
    "0 wrong values shown, 0 backups replaced by damage, what can be repaired is", seconds=1000.0
)
def two_thousand_flipped_bits(folder: Path) -> str:
    return flips(folder, 2000, 1)
