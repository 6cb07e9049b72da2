"""Where a store is, what is said when it cannot be used, and what is waited for."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
import sqlalchemy as sa
from objectives import make_spec

from automl.errors import StoreError
from automl.ledger import Ledger, database


def test_a_store_is_a_folder_a_file_a_server_or_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "s" / "ledger.sqlite3"
    assert database.locate("s") == ("", file, tmp_path / "s")
    other = tmp_path / "x.db"
    assert database.locate("sqlite:///x.db") == ("", other, tmp_path)
    assert database.locate("sqlite://") == ("sqlite://", None, None)
    server = "postgresql+psycopg://host/name"
    assert database.locate("postgresql://host/name") == (server, None, tmp_path / ".automl")
    assert database.locate("mysql+pymysql://host/name")[0] == "mysql+pymysql://host/name"
    assert (
        database.locate("postgresql://me:secret@host/name")[0]
        == "postgresql+psycopg://me:secret@host/name"
    )
    for look in (
        database.locate,
        lambda name: database.open_database(name, create=True, readonly=False),
    ):
        with pytest.raises(StoreError, match="must have no NUL"):
            look("a\0b")
    with pytest.raises(StoreError, match="is a folder or sqlite:///FILE"):
        database.locate("sqlite:///")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (".automl", False),
        ("postgresql://u@h/d", False),
        ("postgresql://u:p@h/d", True),
        ("postgresql://h/d?password=x", True),
        ("postgresql://h/d?PassWd=x", True),
        ("postgresql://h/d?passfile=x", False),
    ],
)
def test_a_password_in_a_url_is_refused_and_never_shown(url: str, found: bool) -> None:
    refusal = pytest.raises(StoreError, match="PGPASSWORD") if found else nullcontext()
    with refusal:
        database.refuse_password(url)
    if "://" in url:
        assert database.shown(url) == "postgresql://u:***@h/d".replace(
            "u:***@", url[13:].split("h/d")[0].replace(":p", ":***")
        )


@pytest.mark.parametrize(
    "text", ["postgresql:/me:secret@h/db", "postgres:me:secret@h/db", "sqlite:/secret.db"]
)
def test_a_mistyped_url_is_no_folder_and_is_not_repeated(text: str) -> None:
    with pytest.raises(StoreError, match="with two slashes") as caught:
        database.locate(text)
    assert "secret" not in str(caught.value)
    assert database.locate(f"./{text}")[1] is not None


@pytest.mark.parametrize("url", ["nothing://h/d", "postgresql://h:port/d"])
def test_what_is_no_url_is_told_without_repeating_it(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        database.open_database(url, create=True, readonly=False)
    assert "must be a folder or a database URL" in str(caught.value) or "nothing" in str(
        caught.value
    )


def test_a_kind_of_store_whose_package_is_missing_is_told() -> None:
    with pytest.raises(StoreError, match="needs the package 'pymssql'"):
        database.open_database("mssql+pymssql://h/d", create=True, readonly=False)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "database disk image is malformed",
            r"^store is damaged \(database disk image is malformed\).*put back a copy of the file",
        ),
        ("file is not a database", "store is damaged"),
        ("database is locked", "locked by another process for more than 30 s"),
        ("the server is busy", "locked by another process"),
        ("database or disk is full", "the disk is full; what was recorded before is kept"),
        ("disk I/O error", r"cannot be read or written \(disk I/O error\)"),
        (
            "attempt to write a readonly database",
            "cannot be written to, the file or its folder is read-only",
        ),
        ("  something else ", "^store: something else$"),
    ],
)
def test_what_a_database_says_is_told_in_our_words(said: str, told: str) -> None:
    with pytest.raises(StoreError, match=told), database.translated("store"):
        raise sqlite3.OperationalError(said)


def test_errors_of_files_and_records_are_the_stores() -> None:
    with (
        pytest.raises(StoreError, match=r"^store: No space left"),
        database.translated("store"),
    ):
        raise OSError(28, "No space left on device")
    with (
        pytest.raises(StoreError, match="a record cannot be read: UnicodeDecodeError"),
        database.translated("store"),
    ):
        b"\xff".decode()
    with (
        pytest.raises(StoreError, match="a record cannot be read: KeyError: 'loss'"),
        database.translated("store"),
    ):
        _ = {}["loss"]
    with (
        pytest.raises(StoreError, match=r"^mine$"),
        database.translated("store"),
    ):
        raise StoreError("mine")


class Lost(Exception):
    """What a driver raises, with a code of SQLSTATE."""

    def __init__(self, sqlstate: str | None) -> None:
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("code", "waited_for"),
    [
        (None, True),
        ("08006", True),
        ("57P01", True),
        ("40001", True),
        ("53300", True),
        ("42P01", False),
        ("23505", False),
    ],
)
def test_only_what_passes_by_itself_is_tried_again(code: str | None, waited_for: bool) -> None:
    assert database.is_transient(sa.exc.OperationalError("", {}, Lost(code))) is waited_for
    assert not database.is_transient(sa.exc.ProgrammingError("", {}, Lost(code)))
    broken = sa.exc.ProgrammingError("", {}, Lost(code), connection_invalidated=True)
    assert database.is_transient(broken) is waited_for


def test_memory_is_shared_by_threads_and_needs_no_making() -> None:
    ledger = Ledger.open("sqlite://")
    ledger.create_sweep(make_spec())
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(info.name for info in ledger.sweeps()))
    thread.start()
    thread.join()
    assert found == ["test"]
    assert Ledger.open("sqlite://", readonly=True).sweeps() == []


def test_a_new_file_keeps_a_write_ahead_log(tmp_path: Path) -> None:
    Ledger.open(tmp_path, create=True).close()
    assert (tmp_path / database.FILE_NAME).read_bytes()[18:20] == b"\x02\x02"


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("allowed", [{"file", "folder"}, {"file"}, {"folder"}, set()])
def test_what_cannot_be_written_is_read_without_side_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: set[str], logged: bool
) -> None:
    file = tmp_path / "x.db"
    if logged:
        (tmp_path / "x.db-wal").touch()
    writable = {path for name, path in (("file", file), ("folder", tmp_path)) if name in allowed}
    monkeypatch.setattr(database.os, "access", lambda path, mode: path in writable)
    if len(allowed) == 2:
        found = [database.mode(file, readonly=readonly) for readonly in (False, True)]
        assert found == ["mode=rw", "mode=ro"]
    else:
        expected = "mode=ro" if logged else "mode=ro&immutable=1"
        assert database.mode(file, readonly=False) == expected


def test_a_writer_takes_the_lock_as_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MAX_BUSY_SECONDS", 0.1)
    Ledger.open(tmp_path, create=True)
    one, two = (database.open_database(tmp_path, create=False, readonly=False) for _ in range(2))
    with one.transaction(write=True):
        with two.transaction() as reader:
            assert reader.scalar(sa.text("SELECT 1")) == 1
        with pytest.raises(sa.exc.OperationalError, match="locked"), two.transaction(write=True):
            pass


def test_a_store_that_sqlite_cannot_make_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("no room")

    monkeypatch.setattr(database.sqlite3, "connect", refuse)
    with pytest.raises(StoreError, match=r"ledger.sqlite3: no room"):
        Ledger.open(tmp_path / "new", create=True)
    assert list((tmp_path / "new").iterdir()) == []
