"""The record of the newest commits, beside ledgers of all kinds of ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from objectives import make_spec, record

from automl.core.events import Noted
from automl.errors import StoreError
from automl.ledger import Ledger, ledger
from automl.ledger.check import check
from automl.ledger.database import FILE_NAME
from automl.ledger.newest import Acknowledged, NewestCommits
from automl.ledger.schema import SWEEPS
from automl.ledger.sealing import seal_all


@pytest.fixture
def store(tmp_path: Path) -> Ledger:
    kept = Ledger.open(tmp_path, create=True)
    kept.create_sweep(make_spec())
    return kept


@pytest.mark.parametrize("sweep", [-5, 300_000, 2**60])
def test_a_sweep_of_any_id_is_held_written_and_deleted(
    tmp_path: Path, store: Ledger, sweep: int
) -> None:
    """The id comes from the store, so it may be any number."""
    with store._write() as connection:
        connection.execute(SWEEPS.update().values(id=sweep))
        seal_all(connection)
    store.acquire("test")
    record(store, "test", Noted("test", "a note", at=1.0))
    store.release("test")
    assert len(list(store.events("test"))) == 1
    assert check(tmp_path) == []
    store.delete("test")
    assert store.sweeps() == []


def test_a_sweep_that_could_not_be_taken_is_free(
    store: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: object, **named: object) -> None:
        raise OverflowError("injected")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "Recorder", failing)
        with pytest.raises(OverflowError, match="injected"):
            store.acquire("test")
    store.acquire("test")
    store.close()


def test_only_slots_with_something_are_known(tmp_path: Path) -> None:
    newest = NewestCommits(tmp_path / FILE_NAME)
    assert dict(newest.read()) == {}
    newest.note_commit(3, 1, 7, -9)
    newest.note_commands({"id": 5, "num_commands": 2, "commands_total": 4})
    newest.close()
    expected = {3: Acknowledged((1, 7, -9), None, True), 5: Acknowledged(None, (2, 4), True)}
    found = newest.read()
    assert dict(found) == expected
    assert len(found) == 2
    assert [found.get(sweep) for sweep in (-1, 4, 6, 2**60)] == [None] * 4


def test_a_record_that_is_no_record_is_illegible(tmp_path: Path) -> None:
    newest = NewestCommits(tmp_path / FILE_NAME)
    file = tmp_path / f"{FILE_NAME}-newest"
    file.write_bytes(b"x" * 1000)
    found = newest.read()
    assert set(found.values()) == {Acknowledged(None, None, False)}
    assert sorted(found) == list(range(16)), "the last slot is cut off"
    file.write_bytes(bytes((1 << 24) + 1))
    with pytest.raises(StoreError, match="more than 16777216 bytes"):
        newest.read()
