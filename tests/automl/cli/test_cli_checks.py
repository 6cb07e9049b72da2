"""`automl check`, `repair` and `backup`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attacks import flipped_bits
from click.testing import CliRunner, Result

from automl.cli import cli
from automl.ledger.database import FILE_NAME


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a finished sweep."""
    flipped_bits.write(tmp_path / "store").close()
    return tmp_path / "store"


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


def test_a_sound_store_is_status_0(store: Path) -> None:
    done = run("check", store)
    assert (done.exit_code, done.stdout) == (0, f"{store}: every checksum holds\n")
    done = run("check", store, "--json")
    assert json.loads(done.stdout) == {"store": str(store), "sound": True, "damage": []}
    assert run("repair", store).stdout == f"{store}: the ledger is sound\n"


def test_a_damaged_store_is_status_1_until_it_is_repaired(store: Path) -> None:
    file = store / FILE_NAME
    data = file.read_bytes()
    place = data.index(b'"loss":0.1111')
    file.write_bytes(data[: place + 8] + b"9" + data[place + 9 :])
    done = run("check", store, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["damage"]
    assert "has another checksum" in run("check", store).stdout
    shown = run("trials", "test", "--store", store)
    assert shown.exit_code == 2
    assert f"automl repair {store}" in shown.output
    done = run("repair", store, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["lost"] == []
    assert run("check", store).exit_code == 0
    assert run("trials", "test", "--store", store).exit_code == 0


def test_a_copy_is_written_once(store: Path, tmp_path: Path) -> None:
    done = run("backup", store, tmp_path / "copy.sqlite3", "--json")
    assert json.loads(done.stdout)["num_trials"] == flipped_bits.NUM_TRIALS
    done = run("backup", store, tmp_path / "copy.sqlite3")
    assert done.exit_code == 2
    assert "exists already" in done.output
    assert run("check", tmp_path / "nowhere").exit_code == 2
