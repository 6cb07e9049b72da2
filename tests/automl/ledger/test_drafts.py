"""Drafts of a file: one process at a time, and none is left over."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from automl.errors import StoreError
from automl.ledger import drafts
from automl.ledger.database import FILE_NAME
from automl.ledger.lock import FileLock
from workers.files.folder import Folder


def test_who_makes_or_migrates_a_file_is_waited_for_and_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [f".{FILE_NAME}.draft{end}" for end in ("", "-wal", "-journal")]
    mine = [f".{FILE_NAME}.mine", f"{FILE_NAME}.{'0' * 32}"]
    for name in (*left, *mine):
        (tmp_path / name).touch()
    folder, file = Folder(tmp_path), tmp_path / FILE_NAME
    lock = FileLock(folder, ".migration.lock")
    assert lock.acquire()
    timer = threading.Timer(0.2, lock.release)
    timer.start()
    with drafts.exclusive_draft(file) as draft:
        timer.join()
        assert folder.names() == sorted([".migration.lock", *mine])
        draft.touch()
        monkeypatch.setattr(drafts, "MAX_WAIT_SECONDS", 0.3)
        with (
            pytest.raises(StoreError, match=r"making or migrating it for more than 0\.3 s"),
            drafts.exclusive_draft(file),
        ):
            pass
        assert draft.exists()
    assert folder.names() == sorted(mine)


def test_a_lock_on_a_file_that_was_removed_is_none(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    first = FileLock(folder, "lock")
    assert not first.replaced()
    folder.unlink("lock")
    assert first.replaced()
    second = FileLock(folder, "lock")
    assert first.replaced()
    assert not second.replaced()
