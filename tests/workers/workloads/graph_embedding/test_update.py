"""Scores, losses and gradients of one update, against definitions and autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workers.workloads.graph_embedding.operators import OPERATORS, as_complex
from workers.workloads.graph_embedding.update import (
    UpdateOptions,
    adagrad,
    equal_pairs,
    gradients,
    shared_softmax,
)


@pytest.mark.parametrize("name", OPERATORS)
def test_scores_agree_with_their_definition(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    h, r, t = torch.randn(3, 5, 8, generator=generator)
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
    generator = torch.Generator().manual_seed(1)
    entities = torch.randn(9, 4, generator=generator, dtype=torch.double)
    relations = torch.randn(6, 4, generator=generator, dtype=torch.double)
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
    generator = torch.Generator().manual_seed(0)
    query, target, candidates = (
        torch.randn(n, 4, generator=generator, dtype=torch.double) for n in (5, 5, 7)
    )
    same = equal_pairs(torch.tensor([0, 1, 2, 3, 4]), torch.tensor([9, 2, 2, 8, 0, 7, 6]))
    assert [x.tolist() for x in same] == [[0, 2, 2], [4, 1, 2]]
    inputs = [x.requires_grad_() for x in (query, target, candidates)]

    def plain() -> torch.Tensor:
        negative = (query @ candidates.t()).clone()
        negative[same] = -torch.inf
        positive = (query * target).sum(1)
        return (torch.logaddexp(positive, negative.logsumexp(1)) - positive).sum()

    ours = shared_softmax(query, target, candidates, same, torch.double)
    torch.testing.assert_close(ours, plain())
    for found, expected in zip(
        torch.autograd.grad(ours, inputs), torch.autograd.grad(plain(), inputs), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_a_target_alone_costs_nothing() -> None:
    query, target, candidates = (
        torch.ones(1, 2, requires_grad=True),
        torch.ones(1, 2),
        torch.ones(1, 2),
    )
    loss = shared_softmax(
        query, target, candidates, (torch.tensor([0]), torch.tensor([0])), torch.float32
    )
    loss.backward()
    assert loss.item() == 0
    assert query.grad is not None
    assert query.grad.tolist() == [[0, 0]]
