"""Sentences and their translations in aligned text files of any size, of one or more languages."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path

from search_spaces.errors import DataError
from workers.workloads._data import plain_or_gzipped

from .data import STEMS, decode
from .language_tags import LanguagePair, tag

_MAX_LINE_BYTES = 1 << 24  # bytes per line


@dataclass(frozen=True)
class TextPair:
    """A sentence, its translation, and the name of the language pair ("" if there is only one)."""

    source: str
    target: str
    languages: str = ""

    @property
    def full(self) -> bool:
        """Whether no side is empty."""
        return bool(self.source and self.target)


@dataclass(frozen=True)
class AlignedFiles:
    """Two files with one sentence in each line, plain or .gz."""

    source: Path
    target: Path
    languages: LanguagePair | None = None

    def __iter__(self) -> Iterator[TextPair]:
        """Aligned lines, with a tag before each source if the languages are known.

        Raises:
            DataError: a file cannot be read, is empty, or has more lines than the other.
        """
        number = 0
        for number, (source, target) in enumerate(
            zip_longest(lines_of(self.source), lines_of(self.target)), 1
        ):
            if source is None or target is None:
                files = (self.target, self.source)
                longer, shorter = files if source is None else files[::-1]
                raise DataError(f"{longer} has more lines than {shorter}, which has {number - 1}")
            if self.languages is None:
                yield TextPair(source, target)
            else:
                tagged = f"{tag(self.languages.target)} {source}" if source else ""
                yield TextPair(tagged, target, self.languages.name)
        if not number:
            raise DataError(f"{self.source}: the file is empty")


@dataclass(frozen=True)
class TextCorpus:
    """Several aligned files, whose lines take turns."""

    files: tuple[AlignedFiles, ...]

    def __iter__(self) -> Iterator[TextPair]:
        for row in zip_longest(*self.files):
            yield from (pair for pair in row if pair is not None)

    @property
    def languages(self) -> tuple[LanguagePair, ...]:
        """The language pairs, if there are several."""
        return tuple(part.languages for part in self.files if part.languages)

    def __str__(self) -> str:
        return ", ".join(str(part.source) for part in self.files)

    @classmethod
    def in_folder(
        cls, folder: Path, languages: Sequence[LanguagePair]
    ) -> tuple[TextCorpus, TextCorpus | None]:
        """Training and validation text of language pairs; None if there are no validation files.

        Raises:
            DataError: a file is missing.
        """
        found: dict[str, TextCorpus] = {}
        for split in ("train", "valid"):
            first = languages[0].source
            there = [s for s in STEMS[split] if any(folder.glob(f"{s}.{first}*"))]
            if split == "valid" and not there:
                continue
            stem = there[0] if there else STEMS[split][0]
            found[split] = cls(
                tuple(
                    AlignedFiles(
                        plain_or_gzipped(folder / f"{stem}.{pair.source}"),
                        plain_or_gzipped(folder / f"{stem}.{pair.target}"),
                        pair,
                    )
                    for pair in languages
                )
            )
        return found["train"], found.get("valid")


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file, one at a time; raises DataError if it cannot be read."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(iter(partial(file.readline, _MAX_LINE_BYTES), b""), 1):
                if len(line) == _MAX_LINE_BYTES:
                    raise DataError(
                        f"{path}:{number}: the line has more than {_MAX_LINE_BYTES} bytes"
                    )
                yield decode(path, number, line)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
