"""A log of any length keeps its first and its newest part."""

from __future__ import annotations

from pathlib import Path

from workers.files.folder import Folder
from workers.runtime.parent import shorten

MAX_BYTES = 40_000


def test_a_long_log_is_cut_in_its_middle_and_that_is_said(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as file:
        file.write(b"a" * MAX_BYTES + b"b" * MAX_BYTES)
        file.flush()
        shorten(Folder(tmp_path), "log", MAX_BYTES)
        file.write(b"c")
    head = b"a" * (MAX_BYTES // 2)
    assert (tmp_path / "log").read_bytes() == (
        head + b"\n... the middle of this log is left out ...\n" + b"b" * (MAX_BYTES // 4) + b"c"
    )


def test_a_link_in_place_of_a_log_is_left(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"x" * 2 * MAX_BYTES)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "log").symlink_to(tmp_path / "outside")
    shorten(Folder(tmp_path / "logs"), "log", MAX_BYTES)
    shorten(Folder(tmp_path, "logs", "log"), "log", MAX_BYTES)
    assert (tmp_path / "outside").stat().st_size == 2 * MAX_BYTES
