"""Parallel corpora: the built-in one, Multi30k's folders, and any pair of aligned text files.

The `data` section of a configuration:

    name: builtin                                 English to German, generated
        [train: 28000, valid: 1000]               at most this many pairs
    name: multi30k, dir: DIR                      DIR/{train,val,test_2016_flickr}.{en,de,fr}
    name: parallel, dir: DIR                      DIR/{train,valid,test}.{en,de}, test is optional
    name: parallel, source: FILE, target: FILE    one pair; its last lines are the validation
        [valid_source: FILE, valid_target: FILE]  split unless a second pair is given
    [source_language: en, target_language: de]    suffixes of the files in a folder
    [pairs: [en-de, de-en, en-fr]]                several pairs in their place, see `language_tags`

Text files may be plain or end in .gz.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from search_spaces.errors import DataError
from search_spaces.plugins import nearest
from workers.workloads._data import folder_of, plain_or_gzipped

from . import builtin, language_tags
from .language_tags import LanguagePair

NAMES = ("builtin", "multi30k", "parallel")
_KEYS = {
    "builtin": ("name", "dir", "with_valid", "train", "valid"),
    "multi30k": ("name", "dir", "with_valid", "source_language", "target_language", "pairs"),
    "parallel": (
        *("name", "dir", "with_valid", "source_language", "target_language"),
        *("source", "target", "valid_source", "valid_target"),
        "pairs",
    ),
}
_FILES = ("source", "target", "valid_source", "valid_target")
_STEMS: dict[str, dict[str, tuple[str, ...]]] = {
    "multi30k": {"train": ("train",), "valid": ("val",), "test": ("test_2016_flickr",)},
    "parallel": {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)},
}
_LANGUAGES = ("en", "de", "fr")
_MAX_HELD_OUT = 1000
_MIN_PAIRS = 2


@dataclass(frozen=True)
class ParallelCorpus:
    """Aligned sentences: `targets[i]` translates `sources[i]`; none is empty or has line breaks."""

    sources: Sequence[str]
    targets: Sequence[str]

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, rows: slice) -> ParallelCorpus:
        return ParallelCorpus(self.sources[rows], self.targets[rows])

    def __add__(self, other: ParallelCorpus) -> ParallelCorpus:
        return ParallelCorpus([*self.sources, *other.sources], [*self.targets, *other.targets])


@dataclass(frozen=True)
class Splits:
    """A data set; `test` is None if there is no test split.

    `valid_pairs` has the language pair of each validation sentence if there are several.
    """

    train: ParallelCorpus
    valid: ParallelCorpus
    test: ParallelCorpus | None = None
    valid_pairs: Sequence[LanguagePair] = ()


def load(data: Mapping[str, Any]) -> Splits:
    """Read the data set that the `data` section describes.

    Raises:
        DataError: the name or a key is unknown, a file is missing, damaged or not UTF-8, two files
            differ in their number of lines, or a line is empty; the message gives file and line.
    """
    name = _check_keys(data)
    if name == "builtin":
        parts = {
            split: ParallelCorpus(*zip(*pairs[: _count(data, split)], strict=True))
            for split, pairs in builtin.splits().items()
        }
        splits = Splits(parts["train"], parts["valid"], parts.get("test"))
    elif "source" in data or "target" in data:
        if language_tags.pairs_of(data):
            raise DataError("data.pairs needs a folder, data.dir, in place of source and target")
        splits = _load_files(data)
    elif pairs := language_tags.pairs_of(data):
        splits = _of_pairs([(_load_folder(name, data, pair), pair) for pair in pairs])
    else:
        languages = (data.get("source_language", "en"), data.get("target_language", "de"))
        splits = _load_folder(name, data, (str(languages[0]), str(languages[1])))
    if data.get("with_valid"):
        return replace(splits, train=splits.train + splits.valid)
    return splits


def check(data: Mapping[str, Any]) -> None:
    """Raise DataError if `load` would; reads the files but generates nothing."""
    name = _check_keys(data)
    if name == "builtin":
        for split in ("train", "valid"):
            _count(data, split)
    else:
        load(data)


def stamp(data: Mapping[str, Any]) -> tuple[tuple[str, int, int], ...]:
    """Name, size and modification time of the data files, to detect changes."""
    base = Path(str(data.get("dir") or ".")).expanduser()
    files = [base / str(data[key]) for key in _FILES if data.get(key)]
    if data.get("dir") and base.is_dir():
        files += sorted(path for path in base.iterdir() if path.is_file())
    found = [(path, path.stat()) for path in files if path.is_file()]
    return tuple((str(path), status.st_size, status.st_mtime_ns) for path, status in found)


def _check_keys(data: Mapping[str, Any]) -> str:
    name = data.get("name", "builtin")
    if name not in NAMES:
        raise DataError(
            f"data.name is one of {', '.join(NAMES)}, got {name!r}: "
            f"{nearest(str(name), list(NAMES))}"
        )
    for key in data:
        if key not in _KEYS[name]:
            raise DataError(
                f"data set {name!r} takes no key {key!r}: {nearest(str(key), list(_KEYS[name]))}"
            )
    if not isinstance(data.get("with_valid", False), bool):
        raise DataError(f"data.with_valid is true or false, got {data['with_valid']!r}")
    return str(name)


def _count(data: Mapping[str, Any], split: str) -> int | None:
    """The requested number of pairs of a built-in split; None for all."""
    count = data.get(split)
    if count is not None and (
        isinstance(count, bool) or not isinstance(count, int) or count < _MIN_PAIRS
    ):
        raise DataError(
            f"data.{split} must be a whole number of at least {_MIN_PAIRS}, got {count!r}"
        )
    return count


def _load_files(data: Mapping[str, Any]) -> Splits:
    missing = [key for key in ("source", "target") if not data.get(key)]
    if missing:
        raise DataError(f"data.source and data.target go together; data.{missing[0]} is missing")
    base = Path(str(data.get("dir") or ".")).expanduser()
    train = _read_pair(
        plain_or_gzipped(base / str(data["source"])), plain_or_gzipped(base / str(data["target"]))
    )
    if data.get("valid_source") or data.get("valid_target"):
        if not (data.get("valid_source") and data.get("valid_target")):
            raise DataError(
                "data.valid_source and data.valid_target go together; one of them is missing"
            )
        valid = _read_pair(
            plain_or_gzipped(base / str(data["valid_source"])),
            plain_or_gzipped(base / str(data["valid_target"])),
        )
        return Splits(train, valid)
    return _hold_out(train, str(data["source"]))


def _hold_out(corpus: ParallelCorpus, name: str) -> Splits:
    """Use the last lines, a twentieth and at most 1,000, for validation."""
    if len(corpus) < _MIN_PAIRS:
        raise DataError(
            f"{name} needs at least {_MIN_PAIRS} lines, one to train and one to validate on"
        )
    held_out = max(1, min(_MAX_HELD_OUT, len(corpus) // 20))
    return Splits(corpus[:-held_out], corpus[-held_out:])


def _of_pairs(found: Sequence[tuple[Splits, LanguagePair]]) -> Splits:
    """One data set of several language pairs in turn."""

    def merged(parts: Sequence[ParallelCorpus]) -> ParallelCorpus:
        sources = [
            language_tags.tagged(part.sources, pair.target)
            for part, (_, pair) in zip(parts, found, strict=True)
        ]
        targets = [part.targets for part in parts]
        return ParallelCorpus(language_tags.in_turn(sources), language_tags.in_turn(targets))

    tests = [splits.test for splits, _ in found if splits.test is not None]
    return Splits(
        merged([splits.train for splits, _ in found]),
        merged([splits.valid for splits, _ in found]),
        merged(tests) if len(tests) == len(found) else None,
        language_tags.in_turn([[pair] * len(splits.valid) for splits, pair in found]),
    )


def _load_folder(name: str, data: Mapping[str, Any], languages: tuple[str, str]) -> Splits:
    folder = folder_of(data)
    if name == "multi30k" and not set(languages) <= set(_LANGUAGES):
        raise DataError(
            f"Multi30k's languages are {', '.join(_LANGUAGES)}, got {' to '.join(languages)}"
        )
    if languages[0] == languages[1]:
        raise DataError(f"source and target language must differ, both are {languages[0]!r}")
    found = {}
    for split, stems in _STEMS[name].items():
        stem = next((s for s in stems if _exists(folder / f"{s}.{languages[0]}")), stems[0])
        paths = [folder / f"{stem}.{language}" for language in languages]
        if split != "test" or all(_exists(path) for path in paths):
            found[split] = _read_pair(plain_or_gzipped(paths[0]), plain_or_gzipped(paths[1]))
    return Splits(found["train"], found["valid"], found.get("test"))


def _exists(path: Path) -> bool:
    return path.is_file() or path.with_name(f"{path.name}.gz").is_file()


def _read_pair(source: Path, target: Path) -> ParallelCorpus:
    """Read two files of aligned lines, with LF or CR LF; outer white space is removed."""
    columns = [_read_lines(source), _read_lines(target)]
    if len(columns[0]) != len(columns[1]):
        raise DataError(
            f"{source} and {target} must have the same number of lines, "
            f"got {len(columns[0])} and {len(columns[1])}"
        )
    if not columns[0]:
        raise DataError(f"{source}: the file is empty")
    for number, pair in enumerate(zip_longest(*columns), 1):
        for path, line in zip((source, target), pair, strict=True):
            if not line:
                raise DataError(
                    f"{path}:{number}: the line is empty; each line needs a translation"
                )
    return ParallelCorpus(*columns)


def _read_lines(path: Path) -> list[str]:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    lines = content.split(b"\n")
    if lines and not lines[-1].strip():
        lines.pop()  # the text after the last line break
    return [_decode(path, number, line) for number, line in enumerate(lines, 1)]


def _decode(path: Path, number: int, line: bytes) -> str:
    """A line without outer white space; any other line break inside becomes a blank."""
    try:
        return " ".join(line.decode("utf-8-sig" if number == 1 else "utf-8").split())
    except UnicodeDecodeError as error:
        bad = f"byte {line[error.start]:#04x} at position {error.start}"
        raise DataError(f"{path}:{number}: not UTF-8: {bad}") from None
