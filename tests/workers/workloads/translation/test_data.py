"""Reading corpora: layouts of folders, and every way in which files can be wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from search_spaces.errors import DataError
from workers.workloads.translation import data


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def pair(tmp_path: Path, source: bytes | str, target: bytes | str) -> dict[str, str]:
    for split in ("train", "valid"):
        write(tmp_path / f"{split}.en", source)
        write(tmp_path / f"{split}.de", target)
    return {"name": "parallel", "dir": str(tmp_path)}


def test_multi30k(data_dir):
    section = {"name": "multi30k", "dir": str(data_dir / "multi30k")}
    splits = data.load(section)
    assert (len(splits.train), len(splits.valid)) == (29_000, 1_014)
    assert splits.train.sources[0].startswith("Two young, White males")
    french = data.load({**section, "target_language": "fr"})
    assert french.train.targets[0] != splits.train.targets[0]


def test_plain_and_gzipped_files_are_the_same(tmp_path):
    for split in ("train", "val"):
        write(tmp_path / f"{split}.en", "A dog.\r\nA cat.\r\n")
        write(tmp_path / f"{split}.de.gz", gzip.compress(b"Ein Hund.\nEine Katze."))
    splits = data.load({"name": "multi30k", "dir": str(tmp_path)})
    assert list(splits.train.sources) == ["A dog.", "A cat."]
    assert list(splits.valid.targets) == ["Ein Hund.", "Eine Katze."]


def test_white_space_and_odd_line_breaks_within_a_line(tmp_path):
    splits = data.load(pair(tmp_path, "\ufeffa\u2028b \r\n c\x0bd\rd\t\ne\n", "x\ny\nz\n"))
    assert splits.train.sources == ["a b", "c d d", "e"]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\nc\n", "x\ny\n", r"train\.en and .*train\.de .* 3 and 2"),
        ("a\n\nc\n", "x\ny\nz\n", r"train\.en:2: the line is empty"),
        ("a\nb\n", "x\n \t\n\n", r"train\.de:2: the line is empty|same number of lines"),
        (b"a\nb\xff\n", "x\ny\n", r"train\.en:2: not UTF-8: byte 0xff at position 1"),
        ("a\nb\n", b"x\ny\xc3\n", r"train\.de:2: not UTF-8"),
        ("", "", r"train\.en: the file is empty"),
    ],
)
def test_malformed_pairs(tmp_path, source, target, message):
    section = pair(tmp_path, source, target)
    with pytest.raises(DataError, match=message):
        data.check(section)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"name": "bultin"}, "did you mean 'builtin'"),
        ({"name": "multi30k"}, "needs data.dir"),
        ({"name": "multi30k", "dir": "/no/such"}, "does not exist"),
        ({"name": "multi30k", "dir": "."}, r"neither train\.en nor train\.en\.gz"),
        ({"name": "builtin", "folder": "x"}, "takes no key 'folder'"),
    ],
)
def test_wrong_sections(section, message):
    with pytest.raises(DataError, match=message):
        data.check(section)


@pytest.mark.parametrize("cut", [3, -9])
def test_a_damaged_gzip_file_is_named(tmp_path, cut):
    write(tmp_path / "train.en.gz", gzip.compress(b"a b c\n" * 100)[:cut])
    write(tmp_path / "train.de", "a\n")
    with pytest.raises(DataError, match=r"train\.en\.gz: cannot be read"):
        data.check({"name": "parallel", "dir": str(tmp_path)})
