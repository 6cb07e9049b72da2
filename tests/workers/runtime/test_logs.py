"""A log of any length keeps its first and its newest part."""

from __future__ import annotations

import subprocess
from pathlib import Path

from workers.files.folder import Folder
from workers.protocol import Assignment, open_log
from workers.runtime.logs import bounded_log, shorten

MAX_BYTES = 40_000


def test_a_log_that_several_write_is_cut_in_its_middle(tmp_path: Path) -> None:
    assignment = Assignment("s", 0, 1, {}, None, str(tmp_path / "trials" / "0"))
    with open_log(assignment, 0) as log, bounded_log(assignment, 0, MAX_BYTES):
        for number in range(20_000):
            print(f"line {number}", file=log)
            if number == 10_000:
                subprocess.run(["echo", "from a program"], stdout=log, check=True)
        log.flush()
    (file,) = (tmp_path / "trials" / "0" / "logs").iterdir()
    lines = file.read_text().splitlines()
    assert file.stat().st_size <= MAX_BYTES
    assert lines[0] == "line 0"
    assert lines[-1] == "line 19999"
    assert lines.count("... the middle of this log is left out ...") == 1


def test_that_something_is_left_out_is_said(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a" * MAX_BYTES + b"b" * MAX_BYTES)
    shorten(Folder(tmp_path), "log", MAX_BYTES)
    head = b"a" * (MAX_BYTES // 2)
    assert (tmp_path / "log").read_bytes() == (
        head + b"\n... the middle of this log is left out ...\n" + b"b" * (MAX_BYTES // 4)
    )


def test_a_link_in_place_of_a_log_is_left(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"x" * 2 * MAX_BYTES)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "log").symlink_to(tmp_path / "outside")
    shorten(Folder(tmp_path / "logs"), "log", MAX_BYTES)
    shorten(Folder(tmp_path, "logs", "log"), "log", MAX_BYTES)
    assert (tmp_path / "outside").stat().st_size == 2 * MAX_BYTES
