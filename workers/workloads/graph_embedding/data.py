"""Graphs as head-relation-tail text, plain or gzipped, and a generated graph."""

import gzip
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from search_spaces.errors import DataError
from workers.workloads._data import IntArray, check_data_name, folder_of, plain_or_gzipped

from . import generated

NAMES = ("builtin", "triples")
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class Graph:
    """Triples (n, 3) of head, relation and tail as numbers, and the names of the numbers.

    Entities and relations are numbered over all three splits. Those that only occur in validation
    or test keep their random initial vectors and are ranked like any other.
    """

    train: IntArray
    valid: IntArray
    test: IntArray
    entities: tuple[str, ...]
    relations: tuple[str, ...]


def check(data: Mapping[str, Any]) -> None:
    """Raise DataError if the data set is missing; does not read it."""
    if check_data_name(data, NAMES) == "triples":
        for split in SPLITS:
            plain_or_gzipped(folder_of(data) / f"{split}.txt")


def load(data: Mapping[str, Any]) -> Graph:
    """Read the graph that the `data` section describes; cached for all trials of the process.

    `builtin` takes `families`, their number. `triples` takes `dir`, a folder with
    {train,valid,test}.txt or .txt.gz; each line is head TAB relation TAB tail.

    Raises:
        DataError: the data set is missing or malformed; the message gives file and line.
    """
    if check_data_name(data, NAMES) == "triples":
        return _read(folder_of(data))
    return _builtin(int(data.get("families", 40)))


@lru_cache(1)
def _builtin(families: int) -> Graph:
    facts = generated.triples(families, seed=0)
    return _numbered(dict(zip(SPLITS, generated.split(facts, seed=0), strict=True)))


@lru_cache(1)
def _read(folder: Path) -> Graph:
    paths = {split: plain_or_gzipped(folder / f"{split}.txt") for split in SPLITS}
    graph = _numbered({split: _lines(path) for split, path in paths.items()})
    if not len(graph.train):
        raise DataError(f"{paths['train']} has no triple")
    return graph


def _lines(path: Path) -> Iterable[tuple[str, str, str]]:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line:
            continue
        parts = line.split("\t")
        if len(parts) != 3 or not all(parts):
            raise DataError(
                f"{path}, line {number}: expected head, relation and tail separated by tabs, "
                f"got {line[:80]!r}"
            )
        yield parts[0], parts[1], parts[2]


def _numbered(splits: Mapping[str, Iterable[tuple[str, str, str]]]) -> Graph:
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    arrays = []
    for split in SPLITS:
        rows = [
            (
                entities.setdefault(h, len(entities)),
                relations.setdefault(r, len(relations)),
                entities.setdefault(t, len(entities)),
            )
            for h, r, t in splits[split]
        ]
        arrays.append(np.array(rows, np.int64).reshape(-1, 3))
    return Graph(arrays[0], arrays[1], arrays[2], tuple(entities), tuple(relations))
