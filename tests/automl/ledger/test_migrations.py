"""Ledgers of every released schema open, migrate and resume; a newer schema is refused."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from resealed import change_old_holders, change_version

from automl import sweeps
from automl.cli import cli
from automl.core.budget import Budget
from automl.core.plain_data import compact_json
from automl.core.trial import Trial
from automl.errors import StoreError
from automl.ledger import Ledger, drafts, migrations
from automl.ledger.database import FILE_NAME
from automl.ledger.lease import process_started
from automl.ledger.lock import FileLock
from automl.ledger.schema import COLUMNS
from automl.ledger.sqlite_files import VERSION, Connection, connect_own
from automl.workflows import agents
from workers.files.folder import Folder

RELEASED = Path(__file__).parent / "released"
EVERY = sorted(RELEASED.glob("v*.sqlite3"))
OLDER = [file for file in EVERY if not file.stem.startswith(f"v{VERSION}")]
NUM_EVENTS = {
    "v1": 30,
    "v2": 30,
    "v2-commands": 34,
    "v3": 34,
    "v3-killed": 65,
    "v3-middle": 80,
    "v4": 40,
}
FACTS = ("exception", "node_kind", "held", "estimated_memory_bytes", "artifact_bytes")


def plain(trial: Trial) -> dict[str, Any]:
    """A trial as JSON."""
    points = [[p.step, compact_json(p.metrics), *p[2:]] for p in trial.reports]
    return json.loads(
        compact_json(
            {
                **vars(trial),
                "metrics": compact_json(trial.metrics),
                "lease": trial.lease and vars(trial.lease),
                "reports": points,
            }
        )
    )


def modern(row: dict[str, Any]) -> dict[str, Any]:
    """A trial of schema 3 as JSON: facts that decide were in its details."""
    details = json.loads(row["details"])
    lease = details.pop("lease", None)
    word = lease and lease["asked"]
    facts = {name: details.pop(name) for name in (*FACTS, "worker", "retries") if name in details}
    for name in ("worker_leaves", "gpu_lost", "failed_at", "out_of_memory_on"):
        details.pop(name, None)
    changed = {
        "params": json.loads(row["params"]),
        "details": details,
        "lease": lease
        and {
            **lease,
            "asked": {"": None, "held": "pause"}.get(word, word),
            "held": word == "held",
        },
    }
    return {key: value for key, value in (row | facts | changed).items() if key != "sweep"}


def check_content(ledger: Ledger, released: Path) -> None:
    expected = json.loads(released.with_suffix(".json").read_text())
    assert [info.name for info in ledger.sweeps()] == list(expected)
    for sweep, trials in expected.items():
        is_old = not released.stem.startswith(f"v{VERSION}")
        expected_trials = list(map(modern, trials)) if is_old else trials
        found = [plain(trial) for trial in ledger.trials(sweep)]
        # a field that came later has its default
        assert [
            {key: row[key] for key in old} for row, old in zip(found, expected_trials, strict=True)
        ] == expected_trials
        if released.stem != "v3-middle":
            assert ledger.spec(sweep).budget.trials == 12
            assert ledger.state("nmt").environment["git_commit"] == "abc"
    assert ledger.snapshot("nmt").state == "interrupted"
    assert len(list(ledger.events("nmt"))) == NUM_EVENTS[released.stem]


def columns(file: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(file)) as connection:
        return {
            t: connection.execute(f"PRAGMA table_info({t})").fetchall() for t in sorted(COLUMNS)
        }


@pytest.fixture(params=OLDER, ids=lambda file: file.stem)
def released(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copy(request.param, tmp_path / FILE_NAME)
    file: Path = request.param
    return file


def test_there_is_a_file_of_every_schema() -> None:
    versions = {int(file.stem[1:].partition("-")[0]) for file in EVERY}
    assert versions == set(range(1, VERSION + 1))


def test_a_changed_table_needs_a_new_version(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "fresh", create=True).close()
    assert columns(tmp_path / "fresh" / FILE_NAME) == columns(RELEASED / f"v{VERSION}.sqlite3")


@pytest.mark.parametrize("suggester", ["bayes", "random"])
@pytest.mark.parametrize("file", EVERY, ids=lambda file: file.stem)
def test_every_released_file_opens_and_resumes_to_a_larger_budget(
    file: Path, suggester: str, tmp_path: Path
) -> None:
    shutil.copy(file, tmp_path / FILE_NAME)
    ledger = Ledger.open(tmp_path)
    check_content(ledger, file)
    before, commands = ledger.trials("nmt"), ledger.commands("nmt")
    total = len(before) + 4
    spec = replace(ledger.spec("nmt"), budget=Budget(trials=total), suggester=suggester)
    if suggester != "bayes":
        spec = replace(spec, beliefs={})  # only bayes takes them

    def objective(trial: Any) -> dict[str, float]:
        return {"bleu": trial.params["batch_size"], "loss": trial.params["lr"]}

    for trial in before:  # that an agent holds
        if trial.lease is not None and trial.lease.until > time.time():
            agents.tell(ledger, "nmt", trial.number, {"bleu": 1.0}, agent=trial.lease.agent)
    found = sweeps.run(spec, ledger=ledger, dispatcher="inline", objective=objective, resume=True)
    assert (found.state, len(found.trials)) == ("finished", total)
    assert all(trial.state.finished for trial in found.trials)
    finished = [plain(trial) for trial in before if trial.state.finished]
    assert [plain(found.trials[trial["number"]]) for trial in finished] == finished
    if commands and file.stem != "v3-middle":
        enqueued = [t.params["batch_size"] for t in found.trials if t.source == "enqueued"]
        assert enqueued == [128, 256], "each command runs once"
        suggested = [t for t in found.trials[len(before) :] if t.source == suggester]
        assert suggested
        assert all(16 <= trial.params["batch_size"] <= 64 for trial in suggested)
    ledger.close()


def test_an_older_file_is_read_and_shown_as_it_is(
    released: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_content(Ledger.open(tmp_path, readonly=True), released)
    expected = json.loads(released.with_suffix(".json").read_text())["nmt"]
    for command in ("status", "trials"):
        cli([command, "nmt", "--json", "--store", str(tmp_path)], standalone_mode=False)
        shown = json.loads(capsys.readouterr().out)
        if command == "trials":
            assert [trial["state"] for trial in shown] == [trial["state"] for trial in expected]
    assert (tmp_path / FILE_NAME).read_bytes() == released.read_bytes()
    assert not (tmp_path / "backup").exists()


def test_an_older_file_is_migrated_on_a_copy_and_kept(released: Path, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    check_content(Ledger.open(tmp_path), released)
    assert (tmp_path / FILE_NAME).read_bytes()[18:20] == b"\x02\x02", "with a write-ahead log"
    check_content(Ledger.open(tmp_path), released)
    Ledger.open(tmp_path / "fresh", create=True).close()
    assert columns(tmp_path / FILE_NAME) == columns(tmp_path / "fresh" / FILE_NAME)
    version = released.stem.partition("-")[0]
    kept = tmp_path / "backup" / f"{FILE_NAME}.{version}"
    (tmp_path / "older").mkdir()
    shutil.copy(kept, tmp_path / "older" / FILE_NAME)
    check_content(Ledger.open(tmp_path / "older", readonly=True), released)
    ledger = Ledger.open(tmp_path)
    ledger.acquire("nmt").commit()
    ledger.close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(
    released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(found: Any, connection: Connection, name: str) -> None:
        connection.execute("DROP TABLE absent")

    monkeypatch.setattr(migrations, "_write", fail)
    with pytest.raises(StoreError, match="no such table: absent"):
        Ledger.open(tmp_path)
    monkeypatch.undo()
    check_content(Ledger.open(tmp_path, readonly=True), released)
    assert {path.name for path in tmp_path.iterdir()} == {FILE_NAME, "backup"}


def test_a_sweep_that_an_older_release_still_runs_keeps_its_file(
    released: Path, tmp_path: Path
) -> None:
    change_old_holders(
        tmp_path / FILE_NAME,
        "running",
        held=1,
        host=os.uname().nodename,
        pid=os.getpid(),
        process_started=process_started(os.getpid()),
    )
    with pytest.raises(StoreError, match=rf"process {os.getpid()} on .* still runs a sweep in it"):
        Ledger.open(tmp_path)
    assert Ledger.open(tmp_path, readonly=True).snapshot("nmt").state == "running"


def test_a_file_that_somebody_has_open_is_not_migrated_under_his_hands(
    released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "MAX_WAIT_SECONDS", 0.2)
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM sweeps").fetchall()
        with pytest.raises(StoreError, match=r"locked|another process uses it"):
            Ledger.open(tmp_path)
    check_content(Ledger.open(tmp_path), released)


def test_one_that_another_process_migrates_is_waited_for(
    released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "MAX_WAIT_SECONDS", 0.2)
    lock = FileLock(Folder(tmp_path), ".migration.lock")
    assert lock.acquire()
    with pytest.raises(StoreError, match="another process is making or migrating it"):
        Ledger.open(tmp_path)
    lock.release()
    check_content(Ledger.open(tmp_path), released)


def test_the_side_file_of_schema_3_is_left_out(tmp_path: Path) -> None:
    """It named the newest reports. Sums and counts in the tables tell what is missing."""
    released = RELEASED / "v3.sqlite3"
    shutil.copy(released, tmp_path / FILE_NAME)
    newest = tmp_path / f"{FILE_NAME}-newest"
    newest.write_bytes(b"of other reports" * 10)
    check_content(Ledger.open(tmp_path, readonly=True), released)
    assert newest.exists(), "a reader changes nothing"
    check_content(Ledger.open(tmp_path), released)
    assert not newest.exists()


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, create=True)
    change_version(ledger._database, str(VERSION + 1))
    before = (tmp_path / FILE_NAME).read_bytes()
    for readonly in (True, False):
        with pytest.raises(
            StoreError, match=f"schema version {VERSION + 1}, this automl knows up to {VERSION}"
        ):
            Ledger.open(tmp_path, readonly=readonly)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_controller_on_another_host_keeps_its_file_while_it_lives(
    released: Path, tmp_path: Path
) -> None:
    def held(beat: float) -> None:
        file = tmp_path / FILE_NAME
        change_old_holders(file, "running", held=1, host="elsewhere", heartbeat=beat)

    held(time.time())
    with pytest.raises(StoreError, match="on elsewhere still runs a sweep in it"):
        Ledger.open(tmp_path)
    held(time.time() - 3600)
    Ledger.open(tmp_path).close()


def test_the_tables_of_a_server_are_migrated_in_place(released: Path, tmp_path: Path) -> None:
    """On SQLite, which takes the same statements."""
    file = tmp_path / FILE_NAME

    def upgrade() -> None:
        with closing(connect_own(file)) as connection, connection.transaction(write=True):
            migrations.upgrade_server(connection, "name")

    change_old_holders(file, held=1, host="elsewhere", heartbeat=time.time())
    with pytest.raises(
        StoreError, match=r"name: its schema is older, and process .* on elsewhere still runs"
    ):
        upgrade()
    change_old_holders(file, heartbeat=time.time() - 3600)
    upgrade()
    assert next(info.name for info in Ledger.open(tmp_path).sweeps()) == "nmt"
    upgrade()  # there is nothing left to do
