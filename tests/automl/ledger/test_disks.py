"""Full and read-only disks (real file systems of a few hundred KiB), and damaged files."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from objectives import make_spec, quick, record

from automl import sweeps
from automl.core import Begun, Noted, Proposed, TrialState
from automl.errors import StoreError, UsageError
from automl.ledger import Ledger
from automl.ledger.database import FILE_NAME
from workers.protocol import Report

ROOT = Path(__file__).parents[3]
MOUNT = ["unshare", "--user", "--map-root-user", "--mount"]
PRELUDE = """
import os, pathlib, subprocess, sys
from automl.errors import StoreError
from automl.core.events import Command, Noted, Proposed
from automl.ledger import Ledger
from objectives import make_spec, quick, record
folder = pathlib.Path(sys.argv[1])

def mount(*options):
    subprocess.run(["mount", "-t", "tmpfs", *options, "none", str(folder)], check=True)
"""


def can_mount() -> bool:
    try:
        test = [*MOUNT, "sh", "-c", "mount -t tmpfs none /mnt"]
        return subprocess.run(test, capture_output=True, check=False, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def in_a_mount(folder: Path, code: str) -> str:
    """Run a program that may mount file systems; what it printed."""
    if not can_mount():
        pytest.skip("this machine does not let a program mount a file system of its own (unshare)")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "automl")]),
    }
    command = [*MOUNT, sys.executable, "-c", PRELUDE + textwrap.dedent(code), str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    printed = in_a_mount(
        tmp_path,
        """
        mount("-o", "size=1000k")
        (folder / "other").write_bytes(bytes(300_000))
        ledger = Ledger.open(folder / "store", create=True)
        ledger.create_sweep(make_spec())
        recorder = ledger.hold("test")
        known = 0
        try:
            while known < 10_000:
                record(ledger, "test", Noted("note", "x" * 1000, None, float(known)))
                known += 1
        except StoreError as error:
            print(error)
        kept = Ledger.open(folder / "store", readonly=True)
        assert len(list(kept.events("test"))) == 1 + known, known
        try:
            recorder.commit()  # again: what could not be written is still to be written
        except StoreError as error:
            print(error)
        (folder / "other").unlink()
        recorder.commit()
        assert len(list(kept.events("test"))) == 1 + known + 1
        ledger.close()
        Ledger.open(folder / "store").hold("test")
        """,
    )
    lines = printed.splitlines()
    assert len(lines) in (1, 2)  # the second commit succeeds if a checkpoint has made room
    assert all(
        line.endswith("ledger.sqlite3: the disk is full; what was recorded before is kept")
        for line in lines
    )


def test_a_sweep_on_a_full_disk_ends_with_the_cause_and_can_be_resumed(tmp_path: Path) -> None:
    """The program ends with status 1 and no traceback, and keeps every completed trial."""
    printed = in_a_mount(
        tmp_path,
        """
        mount("-o", "size=1000k")
        os.chdir(folder)
        pathlib.Path("toy.yaml").write_text(
            "name: toy\\nspace: {x: {low: 0.0, high: 1.0, default: 0.5}}\\n"
            "goals: minimize loss\\nsuggester: random\\n"
        )
        pathlib.Path("mine.py").write_text(
            "def objective(trial):\\n    for step in range(2):\\n"
            "        trial.report(step=step, loss=1.0, "
            "**{f'm{i}': i * 0.1 for i in range(9)})\\n    return {'loss': trial.params['x']}\\n"
        )
        pathlib.Path("other").write_bytes(bytes(300_000))
        options = ["--objective", "mine.py:objective", "--dispatcher", "inline"]
        command = [sys.executable, "-m", "automl"]
        sweep = [*command, "sweep", "toy.yaml", *options, "--trials", "500"]
        done = subprocess.run(sweep, capture_output=True, text=True)
        assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr + done.stdout, done.stderr
        print(done.stderr)
        told = sum(1 for line in done.stdout.splitlines() if "completed" in line)
        pathlib.Path("other").unlink()
        kept = Ledger.open(".automl", readonly=True).trials("toy")
        finished = [t for t in kept if t.state == "completed"]
        assert len(finished) >= told > 1, (told, len(finished))
        options += ["--trials", str(len(kept) + 1)]
        done = subprocess.run([*command, "resume", "toy", *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        again = Ledger.open(".automl", readonly=True).trials("toy")
        assert [repr(t) for t in again[: len(finished)]] == [repr(t) for t in finished]
        """,
    )
    assert "the disk is full" in printed
    assert "automl resume toy" in printed


def test_a_read_only_disk_is_read_and_refused_for_writing(tmp_path: Path) -> None:
    printed = in_a_mount(
        tmp_path,
        """
        mount("-o", "size=1000k")
        ledger = Ledger.open(folder, create=True)
        ledger.create_sweep(make_spec())
        ledger.hold("test")
        record(ledger, "test", Proposed(0, {"lr": 0.1}, "bayes"))
        ledger.close()
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        assert len(Ledger.open(folder, readonly=True).trials("test")) == 1
        assert len(Ledger.open(folder).trials("test")) == 1
        for action in (
            lambda: Ledger.open(folder).hold("test"),
            lambda: Ledger.open(folder).create_sweep(make_spec()),
            lambda: Ledger.open(folder).append("test", Command("stop", {})),
            lambda: Ledger.open(folder / "new", create=True),
        ):
            try:
                action()
            except StoreError as error:
                print(error)
        """,
    )
    lines = printed.splitlines()
    assert len(lines) == 4
    assert all("ead-only" in line for line in lines), lines


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a finished sweep."""
    ledger = Ledger.open(tmp_path, create=True)
    spec = make_spec(trials=12)
    ledger.create_sweep(spec)
    sweeps.run(spec, ledger=ledger, objective=quick, dispatcher="inline")
    ledger.close()
    return tmp_path


@pytest.mark.parametrize("seed", range(4))
def test_whatever_bytes_are_damaged_there_is_no_other_error_than_ours(
    store: Path, tmp_path: Path, seed: int
) -> None:
    """Bits turned, bytes zeroed and pages swapped, anywhere in the file."""
    rng = random.Random(seed)
    whole = (store / FILE_NAME).read_bytes()
    messages = []
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 5, 50])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        (store / FILE_NAME).write_bytes(data)
        try:
            ledger = Ledger.open(store)
            ledger.sweeps()
            ledger.snapshot("test")
            list(ledger.events("test"))
            ledger.spec("test")
            ledger.hold("test")
            ledger.close()
        except (StoreError, UsageError) as error:
            messages.append(str(error))
    assert messages
    assert all(FILE_NAME in message for message in messages)


def test_symbolic_links_lead_nothing_out_of_the_store(
    store: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "precious").write_text("mine")
    folder = store / "sweeps" / "test"
    for link in (folder, folder.parent):
        shutil.rmtree(link, ignore_errors=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(outside, target_is_directory=True)
        ledger = Ledger.open(store)
        with pytest.raises(StoreError, match="is a symbolic link"):
            ledger.hold("test")
        with pytest.raises(StoreError, match="is a symbolic link"):
            ledger.delete("test")
        link.unlink()
    assert [path.name for path in outside.iterdir()] == ["precious"]


def test_text_and_numbers_that_a_database_refuses(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, create=True)
    ledger.create_sweep(make_spec())
    ledger.hold("test")
    record(
        ledger,
        "test",
        Proposed(0, {"lr": 0.1}, "a\0b\udcff"),
        Begun(0, 1),
        Noted("note", "\0\udcff", 0),
    )
    record(ledger, "test", Report(0, 1, 0, 2**63 - 1, {"\0\udcff": 1.0}, 0.0))
    kept = ledger.trials("test")[0]
    assert (kept.source, kept.state, kept.reports[0].step) == (
        "a\0b\udcff",
        TrialState.RUNNING,
        2**63 - 1,
    )
    assert kept.metrics == {"\0\udcff": 1.0}
