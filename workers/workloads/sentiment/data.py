"""Reviews: aclImdb (Maas et al. 2011) as a folder or tar.gz, or generated.

https://aclanthology.org/P11-1015. Generated ones hold opinions with negation, so that the order of
words matters.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from search_spaces.errors import DataError
from workers.workloads._declarative_workload import check_data_name, files_of, folder_of
from workers.workloads._public_data import find

NAMES = ("builtin", "imdb")
ARCHIVES = ("aclImdb", "aclImdb_v1.tar.gz", "aclImdb_labeled.tar.gz", "aclImdb.tar.gz")
PAD = 0
UNKNOWN = 1
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_MEMBER = re.compile(r"(?:\./)?aclImdb/(train|test)/(pos|neg)/[^/]+\.txt")
_ASPECTS = (
    "plot",
    "acting",
    "music",
    "script",
    "dialogue",
    "ending",
    "camera",
    "cast",
    "pace",
    "humour",
    "story",
)
_GOOD = (
    "wonderful",
    "brilliant",
    "moving",
    "charming",
    "clever",
    "superb",
    "gripping",
    "fresh",
    "elegant",
    "warm",
)
_BAD = (
    "dreadful",
    "boring",
    "clumsy",
    "dull",
    "awful",
    "shallow",
    "lazy",
    "noisy",
    "tedious",
    "hollow",
    "stale",
)
_ADVERBS = ["", "", "really ", "quite ", "very ", "truly ", "rather "]
_NEGATIONS = ["not ", "never ", "hardly ", "far from "]
_FILLERS = (
    "we saw it on a rainy afternoon",
    "the film runs for almost two hours",
    "my brother had told me about it",
    "it was made in a small town by the sea",
    "the hall was half empty",
    "there is a second part in the making",
    "it is based on a book from the last century",
    "the lead had played in three films before",
)
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Reviews:
    """Reviews as word ids.

    Id 0 is padding and id 1 any unknown word; the others are sorted by falling frequency in the
    training split.

    Args:
        words: the concatenated ids of all reviews.
        offsets: the first index of each review in `words`, and the end, shape (n + 1,).
        labels: 1 is good, 0 is bad, shape (n,).
    """

    words: Int32Array
    offsets: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def lengths(self, limit: int) -> npt.NDArray[np.int64]:
        """Number of words of each review, at most `limit`, shape (n,)."""
        return np.minimum(np.diff(self.offsets), limit)

    def padded(
        self, rows: npt.NDArray[np.int64], length: int, vocabulary: int
    ) -> npt.NDArray[np.int64]:
        """The last `length` words of each review, padded in front, shape (rows, length)."""
        at = self.offsets[rows + 1, None] - length + np.arange(length)
        inside = at >= self.offsets[rows, None]
        ids = self.words[np.where(inside, at, 0)].astype(np.int64)
        return np.where(inside, np.where(ids < vocabulary, ids, UNKNOWN), PAD)


@dataclass(frozen=True)
class ReviewCorpus:
    """Training and test reviews, and the words in the order of their ids.

    The first two entries of the vocabulary stand for padding and unknown words.
    """

    train: Reviews
    test: Reviews
    vocabulary: tuple[str, ...]


def tokenize(text: str) -> list[str]:
    """Lower-case words without mark-up and punctuation; "don't" is one word."""
    return _WORD.findall(text.lower().replace("<br />", " "))


def check(data: Mapping[str, Any]) -> None:
    """Raise DataError if the data set is missing; does not read it."""
    if check_data_name(data, NAMES) == "imdb":
        find(folder_of(data), ARCHIVES)


def load(data: Mapping[str, Any]) -> ReviewCorpus:
    """Read the data set that the `data` section describes; cached for all trials of the process.

    `builtin` takes `train` and `test`, numbers of reviews. `imdb` takes `dir`, which holds aclImdb
    or its archive.

    Raises:
        DataError: the data set is missing or malformed.
    """
    if check_data_name(data, NAMES) == "imdb":
        return _imdb(find(folder_of(data), ARCHIVES))
    return _builtin(int(data.get("train", 4000)), int(data.get("test", 1000)))


@lru_cache(2)
def _builtin(train: int, test: int) -> ReviewCorpus:
    texts, labels = reviews(train + test, seed=0)
    splits = ["train"] * train + ["test"] * test
    return _corpus(zip(splits, texts, labels, strict=True))


@lru_cache(1)
def _imdb(source: Path) -> ReviewCorpus:
    corpus = _corpus(_read_imdb(source))
    if not len(corpus.train) or not len(corpus.test):
        raise DataError(
            f"{source} has no aclImdb/train/(pos|neg)/*.txt or no aclImdb/test/(pos|neg)/*.txt"
        )
    return corpus


def _read_imdb(source: Path) -> Iterator[tuple[str, str, int]]:
    for name, content in files_of(source, lambda name: _MEMBER.fullmatch(name) is not None):
        _, split, side, _ = name.rsplit("/", 3)
        try:
            yield split, content.decode("utf-8"), int(side == "pos")
        except UnicodeDecodeError as error:
            raise DataError(f"{source}: {name} is not UTF-8: {error}") from error


def _corpus(reviews: Iterable[tuple[str, str, int]]) -> ReviewCorpus:
    """Number the words of all reviews by falling frequency in the training split.

    Words of equal frequency are in the order of first appearance.
    """
    ids: defaultdict[str, int] = defaultdict(lambda: len(ids))
    words: dict[str, list[Int32Array]] = {"train": [], "test": []}
    labels: dict[str, list[int]] = {"train": [], "test": []}
    for split, text, label in reviews:
        words[split].append(np.array([ids[word] for word in tokenize(text)], dtype=np.int32))
        labels[split].append(label)
    flat = {
        split: np.concatenate([np.zeros(0, np.int32), *parts]) for split, parts in words.items()
    }
    counts = np.bincount(flat["train"], minlength=len(ids))
    order = np.argsort(-counts, kind="stable")
    rank = np.empty(len(ids), np.int32)
    rank[order] = np.arange(len(ids), dtype=np.int32) + 2
    rank[counts == 0] = UNKNOWN
    spelled = list(ids)
    known = [spelled[i] for i in order if counts[i]]

    def split_of(name: str) -> Reviews:
        offsets = np.cumsum([0, *map(len, words[name])], dtype=np.int64)
        return Reviews(
            rank[flat[name]] if len(ids) else flat[name], offsets, np.array(labels[name], np.int64)
        )

    return ReviewCorpus(split_of("train"), split_of("test"), ("<pad>", "<unknown>", *known))


def _clause(rng: np.random.Generator, positive: bool) -> str:
    negated = rng.random() < 0.4
    words = _GOOD if positive != negated else _BAD
    adjective = words[rng.integers(len(words))]
    aspect = _ASPECTS[rng.integers(len(_ASPECTS))]
    negation = _NEGATIONS[rng.integers(len(_NEGATIONS))] if negated else ""
    return f"the {aspect} was {negation}{_ADVERBS[rng.integers(len(_ADVERBS))]}{adjective}"


def _review(rng: np.random.Generator, positive: bool) -> str:
    count = 2 * int(rng.integers(1, 4)) + 1
    agreeing = count // 2 + 1 + int(rng.integers(0, count // 2 + 1))
    clauses = [_clause(rng, positive == (i < agreeing)) for i in range(count)]
    clauses += [_FILLERS[i] for i in rng.integers(0, len(_FILLERS), int(rng.integers(1, 5)))]
    rng.shuffle(clauses)
    return ". ".join(text.capitalize() for text in clauses) + "."


def reviews(count: int, seed: int) -> tuple[list[str], list[int]]:
    """`count` texts and their labels (1 if most opinions of the text are good), half of each.

    About two of five opinions are negated ("not really wonderful"), and up to half of the opinions
    contradict the label.
    """
    rng = np.random.default_rng([seed, 0x7E47])
    labels = [int(i % 2) for i in range(count)]
    return [_review(rng, label == 1) for label in labels], labels
