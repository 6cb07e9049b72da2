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
    write(tmp_path / "a.txt", source)
    write(tmp_path / "b.txt", target)
    return {
        "name": "parallel",
        "source": str(tmp_path / "a.txt"),
        "target": str(tmp_path / "b.txt"),
    }


def test_multi30k(data_dir):
    section = {"name": "multi30k", "dir": str(data_dir / "multi30k")}
    splits = data.load(section)
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (29_000, 1_014, 1_000)
    assert splits.train.sources[0].startswith("Two young, White males")
    french = data.load({**section, "target_language": "fr"})
    assert french.train.targets[0] != splits.train.targets[0]


def test_plain_and_gzipped_files_are_the_same(tmp_path):
    for split in ("train", "val", "test_2016_flickr"):
        write(tmp_path / f"{split}.en", "A dog.\r\nA cat.\r\n")
        write(tmp_path / f"{split}.de.gz", gzip.compress(b"Ein Hund.\nEine Katze."))
    splits = data.load({"name": "multi30k", "dir": str(tmp_path)})
    assert list(splits.train.sources) == ["A dog.", "A cat."]
    assert list(splits.valid.targets) == ["Ein Hund.", "Eine Katze."]


def test_a_pair_of_files_holds_out_its_end(tmp_path):
    lines = [f"line {i}" for i in range(200)]
    splits = data.load(pair(tmp_path, "\n".join(lines), "\n".join(lines)))
    assert (len(splits.train), len(splits.valid)) == (190, 10)
    assert splits.valid.sources[-1] == "line 199"
    assert splits.test is None


def test_white_space_and_odd_line_breaks_within_a_line(tmp_path):
    splits = data.load(pair(tmp_path, "\ufeffa\u2028b \r\n c\x0bd\rd\t\ne\n", "x\ny\nz\n"))
    assert [*splits.train.sources, *splits.valid.sources] == ["a b", "c d d", "e"]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\nc\n", "x\ny\n", r"a\.txt and .*b\.txt .* 3 and 2"),
        ("a\n\nc\n", "x\ny\nz\n", r"a\.txt:2: the line is empty"),
        ("a\nb\n", "x\n \t\n\n", r"b\.txt:2: the line is empty|same number of lines"),
        (b"a\nb\xff\n", "x\ny\n", r"a\.txt:2: not UTF-8: byte 0xff at position 1"),
        ("a\nb\n", b"x\ny\xc3\n", r"b\.txt:2: not UTF-8"),
        ("", "", r"a\.txt: the file is empty"),
        ("a\n", "x\n", "at least 2 lines"),
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
        ({"name": "multi30k", "dir": ".", "target_language": "it"}, "languages are en, de, fr"),
        ({"name": "parallel", "source": "x"}, "data.target is missing"),
        (
            {"name": "parallel", "source": "no.txt", "target": "no.txt"},
            r"neither no\.txt nor no\.txt\.gz",
        ),
        ({"name": "builtin", "folder": "x"}, "takes no key 'folder'"),
    ],
)
def test_wrong_sections(section, message):
    with pytest.raises(DataError, match=message):
        data.check(section)


@pytest.mark.parametrize("cut", [3, -9])
def test_a_damaged_gzip_file_is_named(tmp_path, cut):
    good = gzip.compress(b"a b c\n" * 100)
    write(tmp_path / "a.gz", good[:cut])
    write(tmp_path / "b.gz", good)
    with pytest.raises(DataError, match=r"a\.gz: cannot be read"):
        data.check({"name": "parallel", "dir": str(tmp_path), "source": "a.gz", "target": "b.gz"})
