"""Graphs as head-relation-tail text, plain or gzipped, and a generated graph.

The generated one is of families over four generations, with relations that imply each other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from search_spaces.errors import DataError
from workers.workloads._declarative_workload import (
    IntArray,
    check_data_name,
    folder_of,
    plain_or_gzipped,
    read_lines,
)

NAMES = ("builtin", "triples")
SPLITS = ("train", "valid", "test")
Triple = tuple[str, str, str]
_OPPOSITE = {
    "parent_of": "child_of",
    "grandparent_of": "grandchild_of",
    "aunt_or_uncle_of": "niece_or_nephew_of",
    "married_to": "married_to",
    "sibling_of": "sibling_of",
    "cousin_of": "cousin_of",
}


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
    facts = triples(families, seed=0)
    return _numbered(dict(zip(SPLITS, split(facts, seed=0), strict=True)))


@lru_cache(1)
def _read(folder: Path) -> Graph:
    paths = {split: plain_or_gzipped(folder / f"{split}.txt") for split in SPLITS}
    graph = _numbered({split: _lines(path) for split, path in paths.items()})
    if not len(graph.train):
        raise DataError(f"{paths['train']} has no triple")
    return graph


def _lines(path: Path) -> Iterable[tuple[str, str, str]]:
    for number, line in enumerate(read_lines(path), 1):
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


def _people(
    num_families: int, rng: np.random.Generator
) -> tuple[list[Triple], dict[str, list[str]]]:
    """Marriages, and the children of each person; each couple has one to three children."""
    marriages: list[Triple] = []
    children: dict[str, list[str]] = {}
    for family in range(num_families):
        generation = [f"person_{family}_0"]
        count = 1
        for depth in range(4):
            following = []
            for person in generation:
                spouse = f"person_{family}_{count}"
                count += 1
                marriages.append((person, "married_to", spouse))
                number = int(rng.integers(1, 4)) if depth < 3 else 0
                born = [f"person_{family}_{count + i}" for i in range(number)]
                count += number
                children[person] = children[spouse] = born
                following += born
            generation = following
    return marriages, children


def triples(num_families: int, seed: int) -> list[Triple]:
    """All relations between relatives, in both directions, sorted."""
    marriages, children = _people(num_families, np.random.default_rng([seed, 0xFA41]))
    facts = set(marriages)
    siblings = {c: [s for s in born if s != c] for born in children.values() for c in born}
    for person, born in children.items():
        facts |= {(person, "parent_of", child) for child in born}
        facts |= {(person, "grandparent_of", g) for child in born for g in children.get(child, [])}
        facts |= {
            (person, "aunt_or_uncle_of", n)
            for s in siblings.get(person, [])
            for n in children.get(s, [])
        }
        nephews = {
            child: [n for s in siblings[child] for n in children.get(s, [])] for child in born
        }
        facts |= {
            (c, "cousin_of", n)
            for child in born
            for c in children.get(child, [])
            for n in nephews[child]
        }
    facts |= {
        (person, "sibling_of", other) for person, others in siblings.items() for other in others
    }
    facts |= {(t, _OPPOSITE[r], h) for h, r, t in facts}
    return sorted(facts)


def split(facts: list[Triple], seed: int) -> tuple[list[Triple], list[Triple], list[Triple]]:
    """Training, validation and test triples; the last two get 10% each.

    The opposites of held-out triples stay in training.
    """
    rng = np.random.default_rng([seed, 0x5B17])
    back = {b: a for a, b in _OPPOSITE.items()} | _OPPOSITE
    held: set[Triple] = set()
    for i in rng.permutation(len(facts)):
        head, relation, tail = facts[i]
        if (tail, back[relation], head) not in held:
            held.add(facts[i])
        if len(held) >= len(facts) // 5:
            break
    ordered = [f for f in facts if f in held]
    order = rng.permutation(len(ordered))
    half = len(ordered) // 2
    valid, test = ([ordered[i] for i in sorted(part)] for part in (order[:half], order[half:]))
    return [f for f in facts if f not in held], valid, test
