"""Where a store is, what is said when it cannot be used, and what is waited for."""

from __future__ import annotations

import sqlite3
from contextlib import nullcontext
from pathlib import Path

import pytest

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


def test_a_store_that_sqlite_cannot_make_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("no room")

    monkeypatch.setattr(database.sqlite3, "connect", refuse)
    with pytest.raises(StoreError, match=r"ledger.sqlite3: no room"):
        Ledger.open(tmp_path / "new", create=True)
    assert list((tmp_path / "new").iterdir()) == []
