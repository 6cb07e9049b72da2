from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from search_spaces.errors import DataError
from workers.data.fetch import find, members


def archive(path: Path, *names: str, kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            info.size = len(name) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(name.encode()))
    return path


def test_reads_wanted_members(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", "a/x.txt", "a/y.bin")
    assert dict(members(path, lambda name: name.endswith(".txt"))) == {"a/x.txt": b"a/x.txt"}


def test_links_are_not_followed(tmp_path: Path) -> None:
    assert list(members(archive(tmp_path / "a.tar.gz", "a/x.txt", kind=tarfile.SYMTYPE))) == []


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[: len(b) // 2], lambda b: b"no archive", lambda b: b[:40] + b"XXXX" + b[44:]],
)
def test_damaged(tmp_path: Path, damage: object) -> None:
    path = archive(tmp_path / "a.tar.gz", *(f"a/{i}.txt" for i in range(300)))
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(DataError):
        list(members(path))


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        list(members(tmp_path / "none.tar.gz"))
    with pytest.raises(DataError, match="holds none of"):
        find(tmp_path, ("a", "b"))
