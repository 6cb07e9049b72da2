"""Parallel corpora: the built-in one, and folders of aligned text files such as Multi30k's.

The `data` section of a configuration:

    name: builtin                               English to German, generated
        [train: 28000, valid: 1000]             at most this many pairs
    name: parallel, dir: DIR                    DIR/{train,valid}.{en,de}; `val` or `dev` is `valid`
    name: multi30k, dir: DIR                    the same, in the layout of Multi30k
    [source_language: en, target_language: de]  suffixes of the files in a folder
    [pairs: [en-de, de-en, en-fr]]              several pairs in their place, see `language_tags`

Text files may be plain or end in .gz.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_spaces.errors import DataError
from search_spaces.plugins import nearest
from workers.workloads._data import folder_of, plain_or_gzipped

from . import builtin, language_tags
from .language_tags import LanguagePair

_FOLDER_KEYS = ("name", "dir", "source_language", "target_language", "pairs")
_KEYS = {
    "builtin": ("name", "dir", "train", "valid"),
    "multi30k": _FOLDER_KEYS,
    "parallel": _FOLDER_KEYS,
}
_STEMS = {"train": ("train",), "valid": ("valid", "val", "dev")}
_MIN_PAIRS = 2


@dataclass(frozen=True)
class ParallelCorpus:
    """Aligned sentences: `targets[i]` translates `sources[i]`; none is empty or has line breaks."""

    sources: Sequence[str]
    targets: Sequence[str]

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True)
class Splits:
    """A data set; `valid_pairs` has the language pair of each validation sentence, if several."""

    train: ParallelCorpus
    valid: ParallelCorpus
    valid_pairs: Sequence[LanguagePair] = ()


def load(data: Mapping[str, Any]) -> Splits:
    """Read the data set that the `data` section describes.

    Raises:
        DataError: the name or a key is unknown, a file is missing, damaged or not UTF-8, two files
            differ in their number of lines, or a line is empty; the message gives file and line.
    """
    if _check_keys(data) == "builtin":
        parts = {
            split: ParallelCorpus(*zip(*pairs[: _count(data, split)], strict=True))
            for split, pairs in builtin.splits().items()
        }
        return Splits(parts["train"], parts["valid"])
    pairs = language_tags.pairs_of(data)
    if pairs:
        return _of_pairs([(_load_folder(data, pair), pair) for pair in pairs])
    languages = (data.get("source_language", "en"), data.get("target_language", "de"))
    return _load_folder(data, LanguagePair(*map(str, languages)))


def check(data: Mapping[str, Any]) -> None:
    """Raise DataError if `load` would; reads the files but generates nothing."""
    if _check_keys(data) == "builtin":
        for split in _STEMS:
            _count(data, split)
    else:
        load(data)


def stamp(data: Mapping[str, Any]) -> tuple[tuple[str, int, int], ...]:
    """Name, size and modification time of the data files, to detect changes."""
    if data.get("name", "builtin") == "builtin":
        return ()
    found = [(path, path.stat()) for path in sorted(folder_of(data).iterdir()) if path.is_file()]
    return tuple((str(path), status.st_size, status.st_mtime_ns) for path, status in found)


def _check_keys(data: Mapping[str, Any]) -> str:
    name = data.get("name", "builtin")
    if name not in _KEYS:
        hint = nearest(str(name), list(_KEYS))
        raise DataError(f"data.name is one of {', '.join(_KEYS)}, got {name!r}: {hint}")
    for key in data:
        if key not in _KEYS[name]:
            raise DataError(
                f"data set {name!r} takes no key {key!r}: {nearest(str(key), list(_KEYS[name]))}"
            )
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


def _of_pairs(found: Sequence[tuple[Splits, LanguagePair]]) -> Splits:
    """One data set of several language pairs in turn."""

    def merged(parts: Sequence[ParallelCorpus]) -> ParallelCorpus:
        sources = [
            language_tags.tagged(part.sources, pair.target)
            for part, (_, pair) in zip(parts, found, strict=True)
        ]
        targets = [part.targets for part in parts]
        return ParallelCorpus(language_tags.in_turn(sources), language_tags.in_turn(targets))

    return Splits(
        merged([splits.train for splits, _ in found]),
        merged([splits.valid for splits, _ in found]),
        language_tags.in_turn([[pair] * len(splits.valid) for splits, pair in found]),
    )


def _load_folder(data: Mapping[str, Any], pair: LanguagePair) -> Splits:
    folder = folder_of(data)
    if pair.source == pair.target:
        raise DataError(f"source and target language must differ, both are {pair.source!r}")
    found = []
    for stems in _STEMS.values():
        there = (s for s in stems if list(folder.glob(f"{s}.{pair.source}*")))
        stem = next(there, stems[0])
        found.append(_read_pair(*(plain_or_gzipped(folder / f"{stem}.{name}") for name in pair)))
    return Splits(found[0], found[1])


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
    return ParallelCorpus(*columns)


def _read_lines(path: Path) -> list[str]:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1].strip():
        lines.pop()  # the text after the last line break
    return [_decode(path, number, line) for number, line in enumerate(lines, 1)]


def _decode(path: Path, number: int, line: bytes) -> str:
    """A line without outer white space; any other line break inside becomes a blank."""
    try:
        text = " ".join(line.decode().split())
    except UnicodeDecodeError as error:
        bad = f"byte {line[error.start]:#04x} at position {error.start}"
        raise DataError(f"{path}:{number}: not UTF-8: {bad}") from None
    if not text:
        raise DataError(f"{path}:{number}: the line is empty; each line needs a translation")
    return text
