"""`check` finds damage, and `repair` makes a sound ledger of what is left."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
from attacks import flipped_bits
from objectives import make_spec

from automl.errors import StoreError, UsageError
from automl.ledger import Ledger, backup, drafts
from automl.ledger.backup import back_up_to
from automl.ledger.check import check
from automl.ledger.database import FILE_NAME
from automl.ledger.repair import repair

FRAME = 24 + 4096


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose log is in use."""
    return flipped_bits.make_templates(tmp_path_factory.mktemp("made"))[1]


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "store"))


def turn(file: Path, place: int) -> None:
    """Turn over a bit of the byte at a place."""
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


def end_of_log(store: Path) -> int:
    return (store / f"{FILE_NAME}-wal").stat().st_size


def test_a_store_whose_log_is_in_use_is_sound(store: Path) -> None:
    assert check(store) == []
    done = repair(store)
    assert (done.damage, done.lost, done.aside) == ([], [], None)
    assert not list((store / "backup").glob("damaged*"))


def test_a_bad_frame_loses_what_comes_after_it_and_the_head_tells(store: Path) -> None:
    truth = flipped_bits.seen(store)
    turn(store / f"{FILE_NAME}-wal", 32 + 10 * FRAME + 1000)
    with pytest.raises(StoreError, match=r"the last records of sweep 'test' are missing.*repair"):
        Ledger.open(store).trials("test")
    assert "the last records of sweep 'test' are missing" in check(store)[0]
    done = repair(store)
    assert done.aside is not None
    assert len(done.lost) == 1
    assert flipped_bits.seen(store) != truth
    assert check(store) == []


def test_a_ledger_whose_name_begins_like_the_backups_is_repaired(tmp_path: Path) -> None:
    flipped_bits.write(tmp_path).close()
    file = tmp_path / "backup.sqlite3"
    (tmp_path / FILE_NAME).rename(file)
    (tmp_path / f"{FILE_NAME}-head").rename(tmp_path / "backup.sqlite3-head")
    store = f"sqlite:///{file}"
    truth = Ledger.open(store, readonly=True).trials("test")
    turn(file, file.read_bytes().index(b'"loss":0.1111') + 8)
    assert check(store)
    done = repair(store)
    assert done.aside is not None
    assert len(done.lost) == 1, "it has no backup of this name"
    assert check(store) == []
    kept = Ledger.open(store, readonly=True).trials("test")
    assert sum(one != other for one, other in zip(kept, truth, strict=True)) == 1


def test_the_log_of_a_deleted_ledger_is_not_applied_to_a_new_one(store: Path) -> None:
    (store / FILE_NAME).unlink()
    (store / f"{FILE_NAME}-journal").write_bytes(b"of the deleted ledger")
    ledger = Ledger.open(store, create=True)
    assert ledger.sweeps() == []
    assert not (store / f"{FILE_NAME}-journal").exists()
    ledger.create_sweep(make_spec())
    ledger.close()
    assert check(store) == []


def test_a_last_commit_that_is_lost_is_noticed(store: Path) -> None:
    log = store / f"{FILE_NAME}-wal"
    turn(log, end_of_log(store) - 100)
    with pytest.raises(StoreError, match="the last records of sweep 'test' are missing"):
        Ledger.open(store).trials("test")


def test_a_log_that_is_gone_is_noticed(store: Path) -> None:
    (store / f"{FILE_NAME}-wal").unlink()
    with pytest.raises(StoreError, match="the last records of sweep 'test' are missing"):
        Ledger.open(store).sweeps()
    done = repair(store)
    assert len(done.lost) == 1
    assert "records of sweep 'test', the last of" in done.lost[0]
    kept = Ledger.open(store, readonly=True).trials("test")
    assert len(kept) == 7, "the newest backup has two more than the file"
    assert check(store) == []


def test_a_damaged_page_that_ends_a_scan_early_is_no_end_of_the_log(store: Path) -> None:
    """SQLite compares a key of garbage, and takes the rest of the sweep for another's."""
    truth = flipped_bits.seen(store)
    file = store / FILE_NAME
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = "SELECT number FROM records WHERE sweep = 1 AND number > 0 ORDER BY number"
        (count,) = connection.execute("SELECT count(*) FROM records").fetchone()
    data = file.read_bytes()
    leaves = [at for at in range(4096, len(data), 4096) if data[at] == 10]  # of an index
    pointers = [at + 8 + i for at in leaves for i in range(2 * data[at + 4])]
    hidden: list[bytes] = []
    for bit in (place * 8 + i for place in pointers for i in range(8)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        with closing(sqlite3.connect(file)) as connection, suppress(sqlite3.DatabaseError):
            rows = [number for (number,) in connection.execute(query)]
            if len(rows) < count and rows == list(range(1, len(rows) + 1)):
                hidden.append(bytes(damaged))
                with pytest.raises(StoreError, match="automl repair"):
                    Ledger.open(store, readonly=True).trials("test")
    assert hidden, "no bit hides the end of the log"
    file.write_bytes(hidden[0])
    assert repair(store).lost == []
    assert flipped_bits.seen(store) == truth


def test_a_damaged_schema_is_replaced(store: Path) -> None:
    """It says where the tables are; a backup says the same."""
    truth = flipped_bits.seen(store)
    for name in (b"leases", b"snapshots", b"REATE TABLE records"):
        with closing(sqlite3.connect(store / FILE_NAME)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        data = (store / FILE_NAME).read_bytes()
        place = data.index(name) + 2
        turn(store / FILE_NAME, place)
        with pytest.raises(StoreError, match="automl repair"):
            Ledger.open(store)
        assert repair(store).lost == []
        assert flipped_bits.seen(store) == truth


def test_the_catalogue_follows_from_the_logs(store: Path) -> None:
    """The page of the sweeps is lost."""
    with closing(sqlite3.connect(store / FILE_NAME)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'sweeps'"
        (page,) = connection.execute(query).fetchone()
    data = bytearray((store / FILE_NAME).read_bytes())
    data[4096 * (page - 1) : 4096 * page] = bytes(4096)
    (store / FILE_NAME).write_bytes(data)
    done = repair(store)
    assert done.lost == []
    assert len(Ledger.open(store, readonly=True).trials("test")) == flipped_bits.NUM_TRIALS


def test_a_commit_that_was_interrupted_is_no_damage(store: Path) -> None:
    log = store / f"{FILE_NAME}-wal"
    log.write_bytes(log.read_bytes() + bytes(FRAME) + b"x" * 100)
    assert check(store) == []


def test_a_store_in_use_is_not_repaired(store: Path) -> None:
    ledger = Ledger.open(store)
    ledger.acquire("test")
    turn(store / "backup" / FILE_NAME, 5000)
    (store / f"{FILE_NAME}-head").write_bytes(b"x" * 128)
    assert len(check(store)) >= 1
    with pytest.raises(StoreError, match="'test' is in use: end it"):
        repair(store)
    ledger.close()


def test_a_ledger_in_use_is_copied_whole(store: Path, tmp_path: Path) -> None:
    truth = flipped_bits.seen(store)
    (tmp_path / "new").mkdir()
    assert back_up_to(store, tmp_path / "new" / FILE_NAME) == flipped_bits.NUM_TRIALS
    assert flipped_bits.seen(tmp_path / "new") == truth
    with pytest.raises(UsageError, match="exists already"):
        back_up_to(store, tmp_path / "new" / FILE_NAME)


@pytest.mark.parametrize("name", ["a#b", "a?b=c", "a%20b", "a#?%3f"])
def test_a_folder_may_have_any_name(name: str, tmp_path: Path) -> None:
    """SQLite is given URIs, in which these characters mean something else."""
    store = tmp_path / name
    flipped_bits.write(store).close()
    truth = flipped_bits.seen(store)
    backup.back_up(store / FILE_NAME)
    assert (store / "backup" / FILE_NAME).exists()
    turn(store / FILE_NAME, 5000)
    shutil.copy(store / "backup" / FILE_NAME, store / FILE_NAME)
    assert flipped_bits.seen(store) == truth
    (tmp_path / f"{name}-copy").mkdir()
    back_up_to(store, tmp_path / f"{name}-copy" / FILE_NAME)
    assert flipped_bits.seen(tmp_path / f"{name}-copy") == truth
    assert check(store) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, f"{name}-copy"]


def test_a_ledger_with_a_second_name_is_copied(tmp_path: Path) -> None:
    """The copy only reads it."""
    flipped_bits.write(tmp_path / "linked").close()
    os.link(tmp_path / "linked" / FILE_NAME, tmp_path / "other")
    copy = tmp_path / "copy.sqlite3"
    assert back_up_to(tmp_path / "linked", copy) == flipped_bits.NUM_TRIALS


def test_what_is_no_file_cannot_be_repaired(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a server has no files"):
        repair("sqlite://")
    with pytest.raises(StoreError, match="there is no store"):
        check(tmp_path / "nowhere")


def test_three_backups_are_kept_and_damage_replaces_none(store: Path) -> None:
    ledger = Ledger.open(store)
    ledger.create_sweep(make_spec("second"))
    places = [store / "backup" / f"{FILE_NAME}{end}" for end in ("", ".1", ".2")]
    before = [place.read_bytes() for place in places]
    backup.back_up(store / FILE_NAME)
    after = [place.read_bytes() for place in places]
    assert after[1:] == before[:2]
    assert after[0] != before[0]
    with ledger._database.transaction(write=True) as connection:
        connection.execute("UPDATE records SET recorded = 7.0 WHERE number = 3")
    backup.try_back_up(store / FILE_NAME)
    assert [place.read_bytes() for place in places] == after
    assert sorted(path.name for path in (store / "backup").iterdir()) == [
        place.name for place in places
    ]


def test_one_backup_at_a_time_and_no_draft_of_a_killed_one_stays(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = store / "backup" / FILE_NAME
    left = newest.with_name(f".{FILE_NAME}.draft")
    left.touch()
    backup.back_up(store / FILE_NAME)
    assert not left.exists()
    before = newest.stat().st_ino
    monkeypatch.setattr(drafts, "MAX_WAIT_SECONDS", 0.1)
    with drafts.exclusive_draft(newest):
        backup.try_back_up(store / FILE_NAME)
    assert newest.stat().st_ino == before
