"""Several language pairs in one corpus: a tag before each source names the target language.

The recipe of Johnson et al. 2017 (https://arxiv.org/abs/1611.04558), as Sockeye's tutorial on
multilingual models follows it: only the data change. The model learns pairs that have no data, too.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

from search_spaces.errors import DataError

T = TypeVar("T")
_PAIR = re.compile(r"([A-Za-z]{2,8}(?:_[A-Za-z]+)?)-([A-Za-z]{2,8}(?:_[A-Za-z]+)?)")
_RULE = "data.pairs is a list of language pairs such as [en-de, de-en]"


class LanguagePair(NamedTuple):
    """A source and a target language."""

    source: str
    target: str

    @property
    def metric(self) -> str:
        """The name of BLEU on the sentences of this pair, such as "bleu_en_de"."""
        return f"bleu_{self.source}_{self.target}"


def pairs_of(data: Mapping[str, Any]) -> list[LanguagePair]:
    """The pairs of a `data` section; none without `pairs`.

    Raises:
        DataError: the pairs are malformed, or a pair is there twice.
    """
    given = data.get("pairs")
    if given is None:
        return []
    if not isinstance(given, list | tuple) or not given:
        raise DataError(f"{_RULE}, got {given!r:.100}")
    if data.get("source_language") or data.get("target_language"):
        raise DataError("data.pairs names the languages: leave out source_ and target_language")
    found: list[LanguagePair] = []
    for pair in given:
        match = _PAIR.fullmatch(pair) if isinstance(pair, str) else None
        if match is None:
            raise DataError(f"{_RULE}, got {pair!r:.100}")
        if match[1] == match[2]:
            raise DataError(f"source and target language must differ, both are {match[1]!r}")
        if LanguagePair(match[1], match[2]) in found:
            raise DataError(f"data.pairs has {pair} twice")
        found.append(LanguagePair(match[1], match[2]))
    return found


def tag(language: str) -> str:
    """What stands before a source that is to be translated into a language."""
    return f"<2{language}>"


def tags(pairs: Sequence[LanguagePair]) -> tuple[str, ...]:
    """The tags of language pairs, each an entry of the vocabulary."""
    return tuple(tag(target) for target in sorted({pair.target for pair in pairs}))


def tagged(sources: Sequence[str], language: str) -> list[str]:
    """Sources with the tag of their target language."""
    return [f"{tag(language)} {text}" for text in sources]


def in_turn(columns: Sequence[Sequence[T]]) -> list[T]:
    """The first line of each column, then the second; so every beginning has all pairs."""
    return [line for row in zip_longest(*columns) for line in row if line is not None]
