"""Public data sets: what is fetched is what was named, and archives are read without harm."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from automl.cli import cli
from search_spaces.errors import AutomlError, DataError
from workers.workloads._public_data import DATASETS, PublicDataset, fetch, find, members

CONTENT = bytes(range(256)) * 4000


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def archive(path: Path, files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the file of a data set "one"."""
    file = tmp_path / "site" / "set.bin"
    file.parent.mkdir()
    file.write_bytes(CONTENT)
    known = {"one": PublicDataset("a test", "nothing", {file.as_uri(): sha256(CONTENT)})}
    monkeypatch.setattr("workers.workloads._public_data.DATASETS", known)
    return file


def test_a_file_is_fetched_checked_and_kept(tmp_path: Path, site: Path) -> None:
    target, seen = tmp_path / "to", list[int]()
    (path,) = fetch("one", target, lambda file, done, total: seen.append(done))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == len(CONTENT)
    path.write_bytes(b"other")
    fetch("one", target)
    site.unlink()
    fetch("one", target)
    assert path.read_bytes() == CONTENT
    assert [p.name for p in target.iterdir()] == ["set.bin"]


def test_what_is_not_whole_is_refused_and_not_kept(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "to"
    site.write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(DataError, match="sha256"):
        fetch("one", target)
    site.unlink()
    with pytest.raises(AutomlError, match="No such file"):
        fetch("one", target)
    with pytest.raises(DataError, match="did you mean 'one'"):
        fetch("on", target)
    half: Any = io.BytesIO(CONTENT[:512_000])
    half.headers = {"Content-Length": len(CONTENT)}
    monkeypatch.setattr("urllib.request.urlopen", lambda *given, **more: half)
    with pytest.raises(AutomlError, match="the transfer broke off after 512000 of 1024000 bytes"):
        fetch("one", target)
    assert list(target.iterdir()) == []


def test_from_the_command_line(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["workloads", "--fetch", "one", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["files"]) == (0, ["data/one/set.bin"])
    (tmp_path / "data" / "one" / "set.bin").unlink()
    site.write_bytes(CONTENT[1:])
    for name, message in (("two", "unknown data set"), ("one", "sha256")):
        done = CliRunner().invoke(cli, ["workloads", "--fetch", name])
        assert done.exit_code in (1, 2)
        assert message in done.stderr
        assert isinstance(done.exception, SystemExit)


def test_members_are_checked_and_written_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "g.tar.gz", {"G/train.txt": b"a\tr\tb\n", "G/other": b"?"})
    known = {"g": PublicDataset("", "", {path.as_uri(): {"train.txt": sha256(b"a\tr\tb\n")}})}
    monkeypatch.setattr("workers.workloads._public_data.DATASETS", known)
    (written,) = fetch("g", tmp_path / "to")
    assert written.read_bytes() == b"a\tr\tb\n"
    assert list((tmp_path / "to").iterdir()) == [written]
    archive(path, {"G/train.txt": b"changed"})
    written.unlink()
    with pytest.raises(DataError, match=r"train\.txt"):
        fetch("g", tmp_path / "to")


def test_members_known_are_those_of_the_real_data(data_dir: Path) -> None:
    [known] = DATASETS["umls"].files.values()
    assert not isinstance(known, str)
    for member, wanted in known.items():
        content = gzip.decompress((data_dir / "kg" / "umls" / f"{member}.gz").read_bytes())
        assert sha256(content) == wanted


def test_wanted_members_are_read_and_links_are_not_followed(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", {"a/x.txt": b"x", "a/y.bin": b"y"})
    assert dict(members(path, lambda name: name.endswith(".txt"))) == {"a/x.txt": b"x"}
    assert list(members(archive(path, {"a/x.txt": b""}, tarfile.SYMTYPE))) == []
    with pytest.raises(DataError, match="No such file"):
        list(members(tmp_path / "none.tar.gz"))
    with pytest.raises(DataError, match="holds none of"):
        find(tmp_path, ("a", "b"))


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[: len(b) // 2], lambda b: b"no archive", lambda b: b[:40] + b"XXXX" + b[44:]],
)
def test_a_damaged_archive_is_refused(tmp_path: Path, damage: Any) -> None:
    path = archive(tmp_path / "a.tar.gz", {f"a/{i}.txt": b"%d" % i for i in range(300)})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError):
        list(members(path))
