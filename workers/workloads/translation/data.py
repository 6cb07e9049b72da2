"""Parallel corpora: the built-in one, and folders of aligned text files such as Multi30k's.

The `data` section of a configuration:

    name: builtin                               English to German, generated
        [train: 28000, valid: 1000]             at most this many pairs
    name: parallel, dir: DIR                    DIR/{train,valid}.{en,de}; `val` or `dev` is `valid`
    name: multi30k, dir: DIR                    the same, in the layout of Multi30k
    [source_language: en, target_language: de]  suffixes of the files in a folder
    [pairs: [en-de, de-en, en-fr]]              several pairs in their place

Text files may be plain or end in .gz. With several pairs, a tag before each source names the target
language. The model learns pairs that have no data, too. This is the recipe of Johnson et al. 2017
(https://arxiv.org/abs/1611.04558), as Sockeye's tutorial on multilingual models follows it: only
the data change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from search_spaces.errors import DataError
from search_spaces.plugins import nearest
from workers.workloads._declarative_workload import (
    check_data_name,
    folder_of,
    plain_or_gzipped,
    read_lines,
)

from . import builtin

T = TypeVar("T")
_FOLDER_KEYS = ("name", "dir", "source_language", "target_language", "pairs")
_KEYS = {
    "builtin": ("name", "dir", "train", "valid"),
    "multi30k": _FOLDER_KEYS,
    "parallel": _FOLDER_KEYS,
}
_STEMS = {"train": ("train",), "valid": ("valid", "val", "dev")}
_MIN_PAIRS = 2
_PAIR = re.compile(r"([A-Za-z]{2,8}(?:_[A-Za-z]+)?)-([A-Za-z]{2,8}(?:_[A-Za-z]+)?)")


class LanguagePair(NamedTuple):
    """A source and a target language."""

    source: str
    target: str

    @property
    def metric(self) -> str:
        """The name of BLEU on the sentences of this pair, such as "bleu_en_de"."""
        return f"bleu_{self.source}_{self.target}"


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
    pairs = pairs_of(data)
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


def pairs_of(data: Mapping[str, Any]) -> list[LanguagePair]:
    """The pairs of a `data` section; none without `pairs`.

    Raises:
        DataError: the pairs are malformed, or a pair is there twice.
    """
    given = data.get("pairs")
    if given is None:
        return []
    if data.get("source_language") or data.get("target_language"):
        raise DataError("data.pairs names the languages: leave out source_ and target_language")
    texts = list(map(str, given)) if isinstance(given, list | tuple) else []
    matches = [_PAIR.fullmatch(text) for text in dict.fromkeys(texts)]
    found = [LanguagePair(match[1], match[2]) for match in matches if match]
    if not found or len(found) < len(given):
        raise DataError(
            "data.pairs is a list of different language pairs such as [en-de, de-en], "
            f"got {given!r:.100}"
        )
    return found


def tags(pairs: Sequence[LanguagePair]) -> tuple[str, ...]:
    """The tags of language pairs, each an entry of the vocabulary."""
    return tuple(f"<2{target}>" for target in sorted({pair.target for pair in pairs}))


def _check_keys(data: Mapping[str, Any]) -> str:
    name = check_data_name(data, tuple(_KEYS))
    for key in data:
        if key not in _KEYS[name]:
            raise DataError(
                f"data set {name!r} takes no key {key!r}: {nearest(str(key), list(_KEYS[name]))}"
            )
    return name


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
    """One data set of several language pairs in turn; each source begins with a tag."""

    def merged(parts: Sequence[ParallelCorpus]) -> ParallelCorpus:
        sources = [
            [f"<2{pair.target}> {text}" for text in part.sources]
            for part, (_, pair) in zip(parts, found, strict=True)
        ]
        return ParallelCorpus(_in_turn(sources), _in_turn([part.targets for part in parts]))

    return Splits(
        merged([splits.train for splits, _ in found]),
        merged([splits.valid for splits, _ in found]),
        _in_turn([[pair] * len(splits.valid) for splits, pair in found]),
    )


def _in_turn(columns: Sequence[Sequence[T]]) -> list[T]:
    """The first line of each column, then the second; so every beginning has all pairs."""
    return [line for row in zip_longest(*columns) for line in row if line is not None]


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
    """Read two files of aligned lines."""
    columns = [_read_texts(source), _read_texts(target)]
    if len(columns[0]) != len(columns[1]):
        raise DataError(
            f"{source} and {target} must have the same number of lines, "
            f"got {len(columns[0])} and {len(columns[1])}"
        )
    return ParallelCorpus(*columns)


def _read_texts(path: Path) -> list[str]:
    """Lines without outer white space; any other line break inside one becomes a blank."""
    lines = [" ".join(line.split()) for line in read_lines(path)]
    if len(lines) > 1 and not lines[-1]:
        lines.pop()  # the text after the last line break
    if "" in lines:
        number = lines.index("") + 1
        raise DataError(f"{path}:{number}: the line is empty; each line needs a translation")
    return lines
