"""Vocabularies of sentencepiece, shared by both languages, trained once and cached.

Entries are byte pairs (Sennrich et al. 2016), pieces of a unigram model (Kudo 2018), or whole
words.
"""

import hashlib
import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import sentencepiece

from search_spaces.errors import DataError, UsageError
from workers.files import Folder

PAD = 0
UNK = 1
BOS = 2
EOS = 3
KINDS = ("bpe", "unigram", "word")
_NUM_SPECIAL = 4
_FORMAT = "2"  # part of the cache key; changes when the training options below do


class Vocabulary:
    """Text to subword ids and back (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909).

    Args:
        proto: a serialised sentencepiece model with this module's special ids.

    Raises:
        DataError: the bytes are not such a model.
    """

    def __init__(self, proto: bytes) -> None:
        try:
            self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=proto)
        except (RuntimeError, TypeError) as error:
            raise DataError(f"not a sentencepiece model: {error}") from None
        self.proto = proto

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without BOS and EOS."""
        return cast(list[list[int]], self._processor.encode(list(texts), num_threads=1))

    def piece(self, token: int) -> str:
        """The text of an entry."""
        return str(self._processor.id_to_piece(token))

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Plain text of each sequence, without special ids and line breaks."""
        clean = [[i for i in row if i >= _NUM_SPECIAL or i == UNK] for row in ids]
        return [" ".join(text.split()) for text in self._processor.decode(clean, num_threads=1)]


def train(
    texts: Iterable[str], size: int, kind: str = "bpe", tags: Sequence[str] = ()
) -> Vocabulary:
    """Train a vocabulary of at most `size` entries; the same texts give the same vocabulary.

    Args:
        texts: of both languages.
        size: number of entries.
        kind: one of `KINDS`.
        tags: texts that are an entry each, such as those of languages.

    Raises:
        UsageError: `size` is too small for the characters of the texts.
    """
    lines = list(texts)
    try:
        return Vocabulary(_train(lines, size, kind, tags))
    except RuntimeError as error:
        enough = re.search(r"value <= (\d+)", str(error))  # the corpus has only this many pieces
        if enough and int(enough[1]) < size:
            return Vocabulary(_train(lines, int(enough[1]), kind, tags))
        raise UsageError(f"vocabulary_size {size} does not fit the corpus: {error}") from None


def _train(lines: list[str], size: int, kind: str, tags: Sequence[str]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        model_type=kind,
        character_coverage=1.0 if len(set("".join(lines[:10_000]))) < size // 4 else 0.9995,
        max_sentence_length=65_536,
        user_defined_symbols=list(tags),
        normalization_rule_name="identity",  # hypotheses have the characters of the references
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def cached(
    texts: Iterable[str],
    size: int,
    folder: Path | None,
    kind: str = "bpe",
    tags: Sequence[str] = (),
) -> Vocabulary:
    """Like `train`, cached in `folder` by a hash of texts and options; multi-process safe."""
    lines = list(texts)
    if folder is None:
        return train(lines, size, kind, tags)
    setting = " ".join([_FORMAT, kind, str(size), sentencepiece.__version__, *tags])
    digest = hashlib.sha256(f"{setting}\n".encode())
    for line in lines:
        digest.update(line.encode() + b"\n")
    path = folder / f"vocabulary-{digest.hexdigest()[:32]}.model"
    try:
        return Vocabulary(path.read_bytes())
    except (OSError, DataError):  # not there yet, or damaged
        vocabulary = train(lines, size, kind, tags)
    save(vocabulary, path)
    return vocabulary


def save(vocabulary: Vocabulary, path: Path) -> None:
    """Write the sentencepiece model; a reader sees the whole file or none."""
    folder = Folder(path.parent)
    folder.make()
    draft = folder.file(f".{path.name}.{os.getpid()}")
    draft.write_bytes(vocabulary.proto)
    draft.replace(path)


def keep(vocabulary: Vocabulary, path: Path, resumes: bool, *, writes: bool) -> None:
    """Save the vocabulary beside the checkpoints, or compare it with the saved one.

    Raises:
        DataError: the training resumes with a different vocabulary.
    """
    if resumes and path.exists() and path.read_bytes() != vocabulary.proto:
        raise DataError(
            f"{path}, the vocabulary of the checkpoint, differs from the vocabulary of this data "
            "and these options; restore the text, vocabulary_size and vocabulary_kind"
        )
    if writes:
        save(vocabulary, path)
