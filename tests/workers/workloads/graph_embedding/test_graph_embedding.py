from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from search_spaces.errors import DataError, UsageError
from workers.context import Context
from workers.protocol import Assignment, Ending, StopRequest
from workers.run import run
from workers.workloads.graph_embedding import GraphEmbedding, data
from workers.workloads.graph_embedding.checkpoint import load_checkpoint
from workers.workloads.graph_embedding.partitions import Partitioning, edges_of_pairs, pairs_of
from workers.workloads.graph_embedding.ranking import Known, ranks
from workers.workloads.graph_embedding.tables import Tables
from workers.workloads.graph_embedding.update import UpdateOptions

FIXED = {"max_epochs": 3, "evaluate_epochs": 1, "dimension": 16, "batch_size": 64, "negatives": 30}


def write(folder: Path, train: str, valid: str = "a\tr\tc\n", test: str = "c\tr\ta\n") -> Path:
    (folder / "train.txt").write_bytes(train.encode())
    (folder / "valid.txt.gz").write_bytes(gzip.compress(valid.encode()))
    (folder / "test.txt").write_bytes(test.encode())
    return folder


def assignment(folder: Path, params: dict[str, Any] | None = None, **more: Any) -> Assignment:
    section, fixed = more.pop("data", {"families": 3}), {**FIXED, **more.pop("fixed", {})}
    return Assignment(
        "s", 0, 1, params or {}, "graph_embedding", str(folder), section, fixed, **more
    )


def test_reads_cr_lf_leading_zeros_and_entities_of_validation(tmp_path: Path) -> None:
    graph = data.load(
        {"name": "triples", "dir": str(write(tmp_path, "00123\tr\tb\r\nb\tr\ta\r\n"))}
    )
    assert graph.entities == ("00123", "b", "a", "c")
    assert graph.train.tolist() == [[0, 0, 1], [1, 0, 2]]
    assert graph.valid.tolist() == [[2, 0, 3]]


@pytest.mark.parametrize("line", ["a r b", "a\tr", "a\tr\tb\tc", "a\t\tb"])
def test_malformed_lines_are_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(DataError, match=r"train\.txt, line 2"):
        data.load({"name": "triples", "dir": str(write(tmp_path, f"a\tr\tb\n{line}\n"))})


def test_missing_files_and_bad_gzip(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither"):
        GraphEmbedding.check({"name": "triples", "dir": str(tmp_path)}, {})
    write(tmp_path, "a\tr\tb\n")
    (tmp_path / "valid.txt.gz").write_bytes(b"\x1f\x8bxx")
    with pytest.raises(DataError, match=r"valid\.txt\.gz"):
        data.load({"name": "triples", "dir": str(tmp_path)})


@pytest.mark.parametrize("fixed", [{"partitions": 3}, {"dimension": 7}])
def test_check_refuses(fixed: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        GraphEmbedding.check({}, fixed)


def test_real_counts(data_dir: Path) -> None:
    graph = data.load({"name": "triples", "dir": str(data_dir / "kg" / "umls")})
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (5216, 652, 661)
    assert (len(graph.entities), len(graph.relations)) == (135, 46)


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_every_pair_meets_once(count: int) -> None:
    found = [frozenset(pair) for pair in pairs_of(count)]
    assert len(found) == len(set(found)) == max(1, count * (count - 1) // 2)
    assert set().union(*found) == set(range(count))


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_pairs_hold_every_edge_once_and_only_their_own(count: int) -> None:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 50, (500, 3))
    partitioning = Partitioning.random(50, count, 0)
    parts = edges_of_pairs(edges, partitioning, rng)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(500))
    for pair, rows in parts.items():
        assert np.isin(partitioning.partition[edges[rows][:, [0, 2]]], pair).all()
    assert max(partitioning.sizes) - min(partitioning.sizes) <= 1


@pytest.mark.parametrize("count", [1, 2, 4])
def test_tables_survive_swapping(tmp_path: Path, count: int) -> None:
    partitioning = Partitioning.random(21, count, 5)
    tables = Tables(tmp_path, partitioning, 4, 4, torch.device("cpu"))
    expected: dict[int, torch.Tensor] = {}
    for sweep in range(2):
        for pair in pairs_of(count):
            tables.open(pair)
            for part in set(pair):
                rows = tables.vectors[tables.rows(part)]
                torch.testing.assert_close(rows, expected.setdefault(part, rows.clone()))
                if sweep == 0:
                    rows += 1
                    expected[part] += 1
    assert len(torch.cat(list(expected.values())).unique()) > 21
    assert tables.bytes <= 21 * 8 * 4 * (0.6 if count == 4 else 1.1)
    assert tables.file(0).exists() == (count > 2)


def brute_force(vectors: torch.Tensor, relations: torch.Tensor, graph: data.Graph) -> list[float]:
    facts = {tuple(row) for part in (graph.train, graph.valid, graph.test) for row in part.tolist()}
    found: list[list[float]] = [[], []]
    for h, r, t in graph.valid.tolist():
        for side, true in ((0, t), (1, h)):

            def score(a: int, c: int, r: int = r + side * len(graph.relations)) -> float:
                return float((vectors[a] * relations[r] * vectors[c]).sum())

            every = [(h, e) if side == 0 else (e, t) for e in range(len(vectors)) if e != true]
            others = [(a, c) for a, c in every if (a, r, c) not in facts]
            limit = score(h, t)
            found[side].append(
                1
                + sum(score(*o) > limit for o in others)
                + sum(score(*o) == limit for o in others) / 2
            )
    return found[0] + found[1]


@pytest.mark.parametrize(
    ("count", "scores"), [(1, 1 << 23), (2, 1 << 23), (4, 1 << 23), (1, 7), (4, 40)]
)
def test_ranks_are_those_of_brute_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, scores: int
) -> None:
    monkeypatch.setattr("workers.workloads.graph_embedding.ranking._SCORES", scores)  # at a time
    graph = data.load({"families": 2})
    partitioning = Partitioning.random(len(graph.entities), count, 0)
    tables = Tables(tmp_path, partitioning, 4, 4, torch.device("cpu"), scale=1.0)
    generator = torch.Generator().manual_seed(0)
    relations = torch.randn(2 * len(graph.relations), 4, generator=generator)
    found = ranks(tables, relations, graph.valid, Known(graph), UpdateOptions("distmult"))
    vectors = torch.empty(len(graph.entities), 4)
    for part in range(count):
        tables.open((part, part), change=False)
        vectors[torch.from_numpy(partitioning.entities(part))] = tables.vectors[tables.rows(part)]
    assert found.tolist() == brute_force(vectors, relations, graph)


def test_equal_scores_get_the_mean_rank(tmp_path: Path) -> None:
    graph = data.load({"families": 2})
    tables = Tables(
        tmp_path,
        Partitioning.random(len(graph.entities), 1, 0),
        4,
        4,
        torch.device("cpu"),
        scale=0.0,
    )
    found = ranks(
        tables,
        torch.zeros(2 * len(graph.relations), 4),
        graph.valid,
        Known(graph),
        UpdateOptions("distmult"),
    )
    known = [len(Known(graph).of(np.array([[h, r]]))[0]) for h, r, _ in graph.valid]
    assert found[: len(known)].tolist() == [1 + (len(graph.entities) - k) / 2 for k in known]


@pytest.mark.parametrize("partitions", [1, 4])
def test_learns_families(tmp_path: Path, partitions: int) -> None:
    fixed = {"max_epochs": 25, "evaluate_epochs": 25, "regularization": 0.01, "dimension": 32}
    params = {"partitions": partitions}
    outcome = run(Context(assignment(tmp_path, params, fixed=fixed, data={"families": 6})))
    assert outcome.ending is Ending.COMPLETED, outcome.message
    assert outcome.metrics["mrr"] > 0.6
    assert outcome.metrics["test_mrr"] > 0.6


def test_pausing_anywhere_changes_nothing(tmp_path: Path) -> None:
    params = {"partitions": 4}
    whole = run(Context(assignment(tmp_path / "whole", params)))
    looks = 0

    def stop_requested() -> StopRequest | None:
        nonlocal looks
        looks += 1
        return StopRequest.PAUSE if looks in (3, 4, 11, 30, 41, 95) else None

    endings, attempts = [], 0
    while not endings or endings[-1] is not Ending.COMPLETED:
        attempts += 1
        begun = assignment(tmp_path / "parts", params, resume=attempts > 1)
        outcome = run(Context(begun, stop_requested=stop_requested))
        endings.append(outcome.ending)
        assert outcome.failure is None, outcome.message
    assert endings.count(Ending.PAUSED) >= 4
    same = {key for key in whole.metrics if "second" not in key}
    assert {key: outcome.metrics[key] for key in same} == {key: whole.metrics[key] for key in same}


def test_entities_of_partitions_are_exported_in_order(tmp_path: Path) -> None:
    one = assignment(tmp_path / "trial", {"partitions": 4}, fixed={"test": False})
    metrics = run(Context(one)).metrics
    GraphEmbedding(one.params, one.data, one.fixed).export(tmp_path / "trial", tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    graph, whole = data.load(one.data), Partitioning.random(len(saved["entities"]), 1, 0)
    tables = Tables(tmp_path / "tables", whole, 16, 16, torch.device("cpu"))
    tables.open((0, 0))
    tables.vectors[tables.rows(0)] = saved["entities"][torch.from_numpy(whole.entities(0))]
    found = ranks(tables, saved["relations"], graph.valid, Known(graph), UpdateOptions("complex"))
    assert float((1 / found).mean()) == pytest.approx(metrics["mrr"], abs=1e-6)


def test_a_damaged_checkpoint_is_skipped(tmp_path: Path) -> None:
    fixed = {"checkpoint_seconds": 0.0}
    run(Context(assignment(tmp_path, fixed=fixed)))
    found = load_checkpoint(tmp_path)
    assert found is not None
    file = found[0] / "entities-0.f32"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(b"x" + content[1:])
    earlier = load_checkpoint(tmp_path)
    assert earlier is not None
    assert earlier[0] != found[0]
