"""Corpora larger than memory: encoded once into shards on disk, read as training needs them.

    DIR/prepared.json          counts, hash of the vocabulary; written last: marks completeness
    DIR/vocabulary.model       learned from a sample of the pairs
    DIR/valid.source.txt, valid.target.txt, valid.languages.txt if there are several pairs
    DIR/0003.{source,target}.{ids,lengths}     flat arrays of int32

Each pair goes to a random shard. An epoch visits the shards in random order, and makes batches
within a shard like those of a corpus in memory. So a batch depends only on seed, epoch and index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from search_spaces.errors import DataError, UsageError
from workers.data.batch import Batch

from . import vocabulary as subwords
from .batches import Examples, Ids, Sequences, plan_batches
from .data import ParallelCorpus
from .language_tags import LanguagePair, pairs_of, tags
from .text_pairs import TextCorpus, TextPair, lines_of
from .vocabulary import BOS, EOS, Vocabulary

MANIFEST = "prepared.json"
VOCABULARY = "vocabulary.model"
FORMAT = 1
_SIDES = ("source", "target")
_PARTS = ("ids", "lengths")
_LEFT = re.compile(
    r"\d{4,}\.(source|target)\.(ids|lengths)|vocabulary\.model|valid\.(source|target|languages)\.txt"
)
_CHUNK = 10_000  # pairs encoded at once
_HELD_OUT = 1000


@dataclass(frozen=True)
class CorpusOptions:
    """Options for preparing a corpus.

    Args:
        vocabulary_size, kind: see `vocabulary.train`.
        max_length: maximum number of ids of a side, EOS included; longer pairs are skipped.
        sample: number of pairs from which the vocabulary is learned.
        shard_pairs: mean number of pairs per shard.
        seed: of the sample and of the assignment to shards.
    """

    vocabulary_size: int = 8000
    kind: str = "bpe"
    max_length: int = 128
    sample: int = 500_000
    shard_pairs: int = 200_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("vocabulary_size", "max_length", "sample", "shard_pairs"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.kind not in subwords.KINDS:
            raise UsageError(
                f"the kind of vocabulary is one of {', '.join(subwords.KINDS)}, got {self.kind!r}"
            )


@dataclass
class Counts:
    """Numbers of pairs that were kept or skipped."""

    pairs: int = 0
    valid: int = 0
    empty: int = 0
    too_long: int = 0
    shards: list[int] = field(default_factory=list)


def prepare(
    text: TextCorpus,
    folder: Path,
    recipe: CorpusOptions,
    valid: TextCorpus | None = None,
) -> Counts:
    """Encode aligned files, plain or .gz, into `folder`.

    Reads the files two or three times and keeps one chunk in memory. Pairs with an empty side are
    skipped and counted. The last pairs, at most 1,000, are the validation split unless `valid` is
    given.

    Args:
        valid: another pair of files, for validation.

    Raises:
        DataError: a file is missing, damaged or not UTF-8, the numbers of lines differ, or no pair
            is left.
        UsageError: the folder already holds a prepared corpus, or the vocabulary does not fit the
            corpus.
    """
    _check_folder(folder)
    sample, total = _sample(text, recipe)
    if total < 2:
        raise DataError(
            f"{text}: a corpus needs at least 2 pairs without an empty side, got {total}"
        )
    held = 0 if valid else min(_HELD_OUT, max(1, total // 20))
    vocabulary = subwords.train(
        (side for pair in sample for side in (pair.source, pair.target)),
        recipe.vocabulary_size,
        recipe.kind,
        tags(text.languages),
    )
    del sample
    counts = Counts(shards=[0] * max(1, round((total - held) / recipe.shard_pairs)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        subwords.save(vocabulary, folder / VOCABULARY)
        _write_shards(text, folder, recipe, vocabulary, total - held, counts)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error}") from None
    files, begin = (valid, 0) if valid else (text, total - held)
    held_out = list(islice((pair for pair in files if pair.full), begin, None))
    if not held_out or not counts.pairs:
        raise DataError(f"{text}: no {'validation' if counts.pairs else 'training'} pair is left")
    counts.valid = len(held_out)
    columns = ("source", "target", *(("languages",) if text.languages else ()))
    for column in columns:
        (folder / f"valid.{column}.txt").write_text(
            "".join(f"{getattr(pair, column)}\n" for pair in held_out), encoding="utf-8"
        )
    facts = {"format": FORMAT, "vocabulary": vocabulary.hash, **asdict(recipe), **asdict(counts)}
    facts["pairs_of_languages"] = [pair.name for pair in text.languages]
    (folder / MANIFEST).write_text(json.dumps(facts, indent=1) + "\n")
    return counts


def _check_folder(folder: Path) -> None:
    """Raise UsageError unless the folder is new, empty, or left by an interrupted preparation."""
    if (folder / MANIFEST).exists():
        raise UsageError(f"{folder} holds a prepared corpus already; name a new folder")
    if folder.exists() and not (
        folder.is_dir() and all(_LEFT.fullmatch(path.name) for path in folder.iterdir())
    ):
        raise UsageError(f"{folder} is not an empty folder; name a new one")


def _sample(text: TextCorpus, recipe: CorpusOptions) -> tuple[list[TextPair], int]:
    """A uniform sample of the pairs (reservoir sampling, Vitter 1985), and their number."""
    rng = np.random.default_rng(recipe.seed)
    total = 0
    kept: list[TextPair] = []
    for pair in text:
        if not pair.full:
            continue
        total += 1
        if len(kept) < recipe.sample:
            kept.append(pair)
        elif (place := int(rng.integers(total))) < recipe.sample:
            kept[place] = pair
    return kept, total


def _write_shards(
    text: TextCorpus,
    folder: Path,
    recipe: CorpusOptions,
    vocabulary: Vocabulary,
    total: int,
    counts: Counts,
) -> None:
    """Encode the first `total` pairs without an empty side, chunk by chunk."""
    for old in folder.glob("[0-9]*.*.*"):
        old.unlink()  # left by an interrupted preparation, see `_check_folder`
    rng = np.random.default_rng([recipe.seed, 1])
    pairs = iter(text)
    left = total
    while left:
        chunk = list(islice(pairs, _CHUNK))
        full = [pair for pair in chunk if pair.full][:left]
        left -= len(full)
        counts.empty += sum(not pair.full for pair in chunk)
        sides = [
            vocabulary.encode([pair.source for pair in full]),
            vocabulary.encode([pair.target for pair in full]),
        ]
        rows = [
            pair for pair in zip(*sides, strict=True) if max(map(len, pair)) < recipe.max_length
        ]
        counts.too_long += len(full) - len(rows)
        counts.pairs += len(rows)
        shards = rng.integers(len(counts.shards), size=len(rows))
        for shard in np.unique(shards):
            mine = [rows[i] for i in np.flatnonzero(shards == shard)]
            counts.shards[shard] += len(mine)
            _append(folder, int(shard), 0, [[*ids, EOS] for ids, _ in mine])
            _append(folder, int(shard), 1, [[BOS, *ids, EOS] for _, ids in mine])


def _append(folder: Path, shard: int, side: int, rows: list[list[int]]) -> None:
    sequences = Sequences.of(rows)
    for part, numbers in (("ids", sequences.ids), ("lengths", sequences.lengths)):
        with _file(folder, shard, side, part).open("ab") as file:
            file.write(numbers.astype("<i4").tobytes())


def _file(folder: Path, shard: int, side: int, part: str) -> Path:
    return folder / f"{shard:04d}.{_SIDES[side]}.{part}"


@dataclass(frozen=True)
class Shards:
    """A prepared corpus on disk.

    Args:
        folder: a folder that `prepare` wrote.
        facts: the content of its `prepared.json`.
    """

    folder: Path
    facts: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Shards:
        """Read `prepared.json`.

        Raises:
            DataError: the file is missing, or the sizes of the shards do not match it.
        """
        try:
            facts = json.loads((folder / MANIFEST).read_text())
            whole = facts["format"] == FORMAT
            for number, count in enumerate(facts["shards"]):
                for side in (0, 1) if count else ():
                    size = _file(folder, number, side, "lengths").stat().st_size
                    whole = whole and size == 4 * count
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{folder} does not hold a corpus of `automl data prepare`: {error}"
            ) from None
        if not whole:
            raise DataError(
                f"{folder}: the shards do not match {MANIFEST}; prepare the corpus again"
            )
        return cls(folder, facts)

    def __len__(self) -> int:
        return int(self.facts["pairs"])

    @property
    def skipped(self) -> int:
        """Number of pairs that were left out."""
        return int(self.facts["empty"] + self.facts["too_long"])

    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the corpus; raises DataError if the file is a different one."""
        try:
            vocabulary = Vocabulary((self.folder / VOCABULARY).read_bytes())
        except (OSError, DataError) as error:
            raise DataError(f"{self.folder / VOCABULARY}: cannot be read: {error}") from None
        if vocabulary.hash != self.facts["vocabulary"]:
            raise DataError(
                f"{self.folder / VOCABULARY} is not the vocabulary of the corpus; "
                "prepare the corpus again"
            )
        return vocabulary

    def valid(self) -> ParallelCorpus:
        """The validation sentences."""
        return ParallelCorpus(
            *(list(lines_of(self.folder / f"valid.{side}.txt")) for side in _SIDES)
        )

    def valid_pairs(self) -> list[LanguagePair]:
        """The language pair of each validation sentence; empty if there is only one pair."""
        if not self.languages:
            return []
        by_name = {pair.name: pair for pair in self.languages}
        try:
            return [by_name[name] for name in lines_of(self.folder / "valid.languages.txt")]
        except KeyError as error:
            raise DataError(
                f"{self.folder}: {MANIFEST} has no language pair {error}; prepare the corpus again"
            ) from None

    @property
    def languages(self) -> list[LanguagePair]:
        """The language pairs, if there are several."""
        return pairs_of({"pairs": self.facts["pairs_of_languages"] or None})

    def examples(self, shard: int) -> Examples:
        """One shard; its ids stay on disk until they are used."""
        sides = []
        for side in (0, 1):
            ids, lengths = (
                np.memmap(_file(self.folder, shard, side, part), "<i4", "r") for part in _PARTS
            )
            offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
            if offsets[-1] != len(ids):
                raise DataError(
                    f"{_file(self.folder, shard, side, 'ids')} is damaged; prepare the corpus again"
                )
            sides.append(Sequences(ids, offsets))
        return Examples(sides[0], sides[1])

    def batches(self, batch_tokens: int, seed: int, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, starting at index `skip`."""
        filled = [number for number, count in enumerate(self.facts["shards"]) if count]
        for number in np.random.default_rng([seed, epoch, 2]).permutation(filled):
            examples = self.examples(int(number))
            plan: list[Ids] = plan_batches(examples, batch_tokens, seed, epoch)
            for rows in plan[skip:]:
                yield examples.planned(rows)
            skip = max(0, skip - len(plan))

    def sample(self) -> Examples:
        """The first shard that is not empty: a random sample of all pairs."""
        return self.examples(
            next(number for number, count in enumerate(self.facts["shards"]) if count)
        )
