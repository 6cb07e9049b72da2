"""Graphs: reading, partitions, scores and gradients of an update, ranks, training."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from search_spaces.errors import DataError, UsageError
from search_spaces.hardware import Hardware
from workers.context import Context
from workers.protocol import Assignment, Ending, Outcome, StopRequest
from workers.run import run
from workers.workloads.graph_embedding import GraphEmbedding, data
from workers.workloads.graph_embedding.partitions import Partitioning, edges_of_pairs, pairs_of
from workers.workloads.graph_embedding.ranking import Known, ranks
from workers.workloads.graph_embedding.tables import Tables, load_checkpoint
from workers.workloads.graph_embedding.update import (
    OPERATORS,
    UpdateOptions,
    adagrad,
    as_complex,
    equal_pairs,
    gradients,
    shared_softmax,
)

FIXED = {"max_epochs": 3, "evaluate_epochs": 1, "dimension": 16, "batch_size": 64, "negatives": 30}
CPU = torch.device("cpu")


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


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
    folder = write(tmp_path, "00123\tr\tb\r\nb\tr\ta\r\n")
    graph = data.load({"name": "triples", "dir": str(folder)})
    assert graph.entities == ("00123", "b", "a", "c")
    assert [graph.train.tolist(), graph.valid.tolist()] == [[[0, 0, 1], [1, 0, 2]], [[2, 0, 3]]]


@pytest.mark.parametrize("line", ["a r b", "a\tr", "a\tr\tb\tc", "a\t\tb"])
def test_malformed_lines_are_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(DataError, match=r"train\.txt, line 2"):
        data.load({"name": "triples", "dir": str(write(tmp_path, f"a\tr\tb\n{line}\n"))})


@pytest.mark.parametrize(
    ("section", "fixed", "message"),
    [
        ({"name": "triples", "dir": "tests"}, {}, "neither"),
        ({}, {"partitions": 3}, "partitions"),
        ({}, {"dimension": 7}, "dimension"),
    ],
)
def test_check_refuses(section: dict[str, Any], fixed: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        GraphEmbedding.check(section, fixed)


def test_a_format_that_the_cpu_emulates_is_not_tried() -> None:
    cpus = [
        Hardware(2, 2**33, precisions=("fp32", "bf16"), slow=slow)
        for slow in ({}, {"bf16": "emulated"})
    ]
    assert [GraphEmbedding.space(cpu).parameters["precision"].choices for cpu in cpus] == [
        ("fp32", "bf16"),
        ("fp32",),
    ]


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_every_pair_meets_once_and_pairs_hold_every_edge_once(count: int) -> None:
    pairs = [frozenset(pair) for pair in pairs_of(count)]
    assert len(pairs) == len(set(pairs)) == max(1, count * (count - 1) // 2)
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
    tables = Tables(tmp_path, Partitioning.random(21, count, 5), 4, 4, CPU)
    expected: dict[int, torch.Tensor] = {}
    for pair in 2 * pairs_of(count):
        tables.open(pair)
        for part in set(pair):
            rows = tables.vectors[tables.rows(part)]
            torch.testing.assert_close(rows, expected.get(part, rows))
            rows += 1
            expected[part] = rows.clone()
    assert len(torch.cat(list(expected.values())).unique()) > 21
    assert tables.buffer.nbytes <= 21 * 8 * 4 * (0.6 if count == 4 else 1.1)
    assert tables.file(0).exists() == (count > 2)


@pytest.mark.parametrize("name", OPERATORS)
def test_scores_agree_with_their_definition(name: str) -> None:
    h, r, t = random(3, 5, 8)
    operator = OPERATORS[name]
    definition = {
        "transe": lambda: -(h + r - t).abs().sum(-1),
        "distmult": lambda: (h * r * t).sum(-1),
        "complex": lambda: (as_complex(h) * as_complex(r) * as_complex(t).conj()).sum(-1).real,
        "rotate": lambda: (
            -(as_complex(h) * torch.exp(1j * r[:, ::2]) - as_complex(t)).abs().sum(-1)
        ),
    }
    forth = operator.compare(operator.apply(h, r), t)
    torch.testing.assert_close(forth, definition[name]())
    torch.testing.assert_close(operator.compare_all(operator.apply(h, r), t).diagonal(), forth)


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_of_rows_are_those_of_the_dense_loss(name: str) -> None:
    entities, relations = (random(n, 4, seed=n, dtype=torch.double) for n in (9, 6))
    edges = torch.tensor([[0, 0, 1], [1, 2, 3], [0, 1, 1]])
    negatives = torch.tensor([1, 4, 5, 4])
    options = UpdateOptions(name, 0.1, torch.double)
    value, (rows, by_entities), (relation_rows, _) = gradients(
        entities, relations, edges, negatives, options
    )
    assert rows.tolist() == [0, 1, 3, 4, 5]
    assert relation_rows.tolist() == [0, 1, 2, 3, 4, 5]
    moved = entities.clone()
    moved[rows] -= 1e-6 * by_entities
    after = gradients(moved, relations, edges, negatives, options)[0]
    assert torch.isfinite(value)
    assert after < value + 1e-9


def test_softmax_loss_by_hand() -> None:
    entities = torch.tensor([[1.0], [2.0], [3.0], [-1.0]])
    edges, negatives = torch.tensor([[0, 0, 1]]), torch.tensor([2, 1])
    loss, _, _ = gradients(entities, torch.ones(2, 1), edges, negatives, UpdateOptions("distmult"))
    tail = -np.log(np.exp(2) / (np.exp(2) + np.exp(3)))  # the target itself is no negative
    head = -np.log(np.exp(2) / (np.exp(2) + np.exp(6) + np.exp(4)))
    assert float(loss) == pytest.approx((tail + head) / 2, rel=1e-5)


def test_adagrad_touches_only_its_rows() -> None:
    table, state = torch.ones(4, 3), torch.zeros(4, 3)
    adagrad(table, state, torch.tensor([2]), torch.tensor([[3.0, 3.0, 3.0]]), 0.5)
    torch.testing.assert_close(table, torch.tensor([[1.0] * 3, [1.0] * 3, [0.5] * 3, [1.0] * 3]))
    torch.testing.assert_close(state[2], torch.full((3,), 9.0))


def test_the_softmax_has_the_gradients_of_autograd() -> None:
    same = equal_pairs(torch.tensor([0, 1, 2, 3, 4]), torch.tensor([9, 2, 2, 8, 0, 7, 6]))
    assert [x.tolist() for x in same] == [[0, 2, 2], [4, 1, 2]]
    inputs = [random(n, 4, seed=i, dtype=torch.double) for i, n in enumerate((5, 5, 7))]
    query, target, candidates = (x.requires_grad_() for x in inputs)
    negative = (query @ candidates.t()).index_put(same, torch.tensor(-torch.inf).double())
    positive = (query * target).sum(1)
    plain = (torch.logaddexp(positive, negative.logsumexp(1)) - positive).sum()
    ours = shared_softmax(query, target, candidates, same, torch.double)
    torch.testing.assert_close(ours, plain)
    found, expected = (torch.autograd.grad(loss, inputs) for loss in (ours, plain))
    torch.testing.assert_close(found, expected)


def test_a_target_alone_costs_nothing() -> None:
    query, other, same = torch.ones(1, 2, requires_grad=True), torch.ones(1, 2), torch.tensor([0])
    loss = shared_softmax(query, other, other, (same, same), torch.float32)
    (gradient,) = torch.autograd.grad(loss, query)
    assert (loss.item(), gradient.tolist()) == (0, [[0, 0]])


def brute_force(vectors: torch.Tensor, relations: torch.Tensor, graph: data.Graph) -> list[float]:
    facts = torch.from_numpy(np.concatenate([graph.train, graph.valid, graph.test]))
    found = []
    for source, target, shift in ((0, 2, 0), (2, 0, len(graph.relations))):
        for edge in graph.valid.tolist():
            same = (facts[:, 1] == edge[1]) & (facts[:, source] == edge[source])
            scores = vectors @ (vectors[edge[source]] * relations[edge[1] + shift])
            limit = scores[edge[target]].clone()
            scores[facts[same, target]] = -torch.inf
            found.append(1 + int((scores > limit).sum()) + int((scores == limit).sum()) / 2)
    return found


@pytest.mark.parametrize(
    ("count", "scores", "scale"), [(1, 7, 1.0), (2, 1 << 23, 1.0), (4, 40, 1.0), (4, 1 << 23, 0.0)]
)  # if all vectors are 0, all scores are equal, which get the mean rank
def test_ranks_are_those_of_brute_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, scores: int, scale: float
) -> None:
    monkeypatch.setattr("workers.workloads.graph_embedding.ranking._SCORES", scores)  # at a time
    graph = data.load({"families": 2})
    partitioning = Partitioning.random(len(graph.entities), count, 0)
    tables = Tables(tmp_path, partitioning, 4, 4, CPU, scale)
    relations = random(2 * len(graph.relations), 4)
    found = ranks(tables, relations, graph.valid, Known(graph), UpdateOptions("distmult"))
    vectors = torch.empty(len(graph.entities), 4)
    for part in range(count):
        tables.open((part, part), change=False)
        vectors[torch.from_numpy(partitioning.entities(part))] = tables.vectors[tables.rows(part)]
    assert found.tolist() == brute_force(vectors, relations, graph)


def test_learns_families_and_exports_vectors_in_the_order_of_names(tmp_path: Path) -> None:
    fixed = {"max_epochs": 25, "evaluate_epochs": 25, "regularization": 0.01, "dimension": 32}
    one = assignment(tmp_path / "trial", {"partitions": 4}, fixed=fixed, data={"families": 6})
    metrics = run(Context(one)).metrics
    assert min(metrics["mrr"], metrics["test_mrr"]) > 0.6
    GraphEmbedding(one.params, one.data, one.fixed).export(tmp_path / "trial", tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    graph, whole = data.load(one.data), Partitioning.random(len(saved["entities"]), 1, 0)
    tables = Tables(tmp_path / "tables", whole, 32, 32, CPU)
    tables.open((0, 0))
    tables.vectors[tables.rows(0)] = saved["entities"][torch.from_numpy(whole.entities(0))]
    found = ranks(tables, saved["relations"], graph.valid, Known(graph), UpdateOptions("complex"))
    assert float((1 / found).mean()) == pytest.approx(metrics["mrr"], abs=1e-6)


def test_pausing_anywhere_changes_nothing_and_a_damaged_checkpoint_is_skipped(
    tmp_path: Path,
) -> None:
    params = {"partitions": 4}
    whole = run(Context(assignment(tmp_path / "whole", params)))
    looks = 0

    def stop_requested() -> StopRequest | None:
        nonlocal looks
        looks += 1
        return StopRequest.PAUSE if looks in (3, 4, 11, 30, 41, 95) else None

    outcomes: list[Outcome] = []
    while not outcomes or outcomes[-1].ending is Ending.PAUSED:
        begun = assignment(tmp_path / "parts", params, resume=bool(outcomes))
        outcomes.append(run(Context(begun, stop_requested=stop_requested)))
    assert outcomes[-1].ending is Ending.COMPLETED, outcomes[-1].message
    assert len(outcomes) > 4
    same = {key for key in whole.metrics if "second" not in key}
    assert all(outcomes[-1].metrics[key] == whole.metrics[key] for key in same)
    newest = load_checkpoint(tmp_path / "parts")
    assert newest is not None
    (newest[0] / "entities-0.f32").unlink()  # it is a link
    (newest[0] / "entities-0.f32").write_bytes(b"x")
    earlier = load_checkpoint(tmp_path / "parts")
    assert earlier is not None
    assert earlier[0] != newest[0]
