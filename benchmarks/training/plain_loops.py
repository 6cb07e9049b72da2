"""The models of the workloads in plain PyTorch: one process, no library around it."""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

WARM_UP = 3  # updates that are not timed


class PlainVgg(nn.Sequential):
    """The VGG-style network of the comparison of frameworks, for images (b, 3, 32, 32)."""

    def __init__(self) -> None:
        def block(a: int, b: int) -> list[nn.Module]:
            first = nn.Conv2d(a, b, 3, padding=1)
            second = nn.Conv2d(b, b, 3, padding=1)
            return [first, nn.ReLU(), second, nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]

        head = [nn.Flatten(), nn.Linear(6400, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10)]
        super().__init__(*block(3, 50), *block(50, 100), *head)
        for module in self:
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def optimizer(self) -> torch.optim.Optimizer:
        """The published one."""
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


class PlainGru(nn.Module):
    """The GRU of the comparison, for words (b, 150)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30_000, 125, padding_idx=0)
        nn.init.uniform_(self.embedding.weight, -0.05, 0.05)
        self.gru = nn.GRU(125, 100, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.output = nn.Linear(100, 2)
        for name, weight in self.gru.named_parameters():
            if name.startswith("weight_ih"):
                nn.init.xavier_uniform_(weight)
            else:
                nn.init.orthogonal_(weight) if weight.ndim > 1 else nn.init.zeros_(weight)

    def forward(self, words: Tensor) -> Tensor:
        """Logits (b, 2) from the last word's state."""
        return self.output(self.dropout(self.gru(self.dropout(self.embedding(words)))[0][:, -1]))

    def optimizer(self) -> torch.optim.Optimizer:
        """The published one."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def train(
    model: PlainVgg | PlainGru,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[Tensor, Tensor]],
):
    """A usual training loop that reads its loss now and then; yields after each update."""
    model.train()
    for x, y in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        yield loss.item()


def seconds_per_update(
    kind: type[PlainVgg] | type[PlainGru], x: Tensor, y: Tensor, updates: int
) -> float:
    """CPU seconds of an update on random batches of 64 rows."""
    model = kind()
    rows = (torch.randint(len(x), (64,)) for _ in range(updates + WARM_UP))
    begun = 0.0
    for number, _ in enumerate(train(model, model.optimizer(), ((x[r], y[r]) for r in rows)), 1):
        if number == WARM_UP:
            begun = time.process_time()
    return (time.process_time() - begun) / updates


def features_seconds(model: nn.Module, images: Tensor, batch_size: int) -> float:
    """CPU seconds for 1,000 images through a model in eval mode, without gradients."""
    with torch.no_grad():
        model(images[:batch_size])
        begun = time.process_time()
        for part in images.split(batch_size):
            model(part)
    return (time.process_time() - begun) * 1000 / len(images)


def dense_complex_seconds(edges: Tensor, sizes: tuple[int, int], updates: int) -> float:
    """CPU seconds of an edge of ComplEx with 400 numbers, dense tables and dense Adagrad.

    Args:
        edges: head, relation and tail, of shape (n, 3).
        sizes: the number of entities and of relations.
        updates: how many to time.
    """
    (num_entities, num_relations) = sizes
    dimension = 200
    batch = 1000
    tables = [nn.Embedding(n, dimension) for n in (num_entities,) * 2 + (2 * num_relations,) * 2]
    real, imaginary, r_real, r_imaginary = tables
    for table in tables:
        nn.init.normal_(table.weight, 0.0, 0.01)
    optimizer = torch.optim.Adagrad([table.weight for table in tables], lr=0.1)
    begun = 0.0
    label = torch.zeros(batch, dtype=torch.long)
    for update in range(updates + WARM_UP):
        if update == WARM_UP:
            begun = time.process_time()
        h, r, t = edges[torch.randint(len(edges), (batch,))].unbind(1)
        negatives = torch.randint(num_entities, (1000,))
        optimizer.zero_grad()
        loss = torch.zeros(())
        for source, relation, target in ((h, r, t), (t, r + num_relations, h)):
            a = real(source)
            b = imaginary(source)
            c = r_real(relation)
            d = r_imaginary(relation)
            x = a * c - b * d
            y = a * d + b * c
            positive = (x * real(target) + y * imaginary(target)).sum(1, keepdim=True)
            scores = x @ real(negatives).t() + y @ imaginary(negatives).t()
            loss = loss + functional.cross_entropy(torch.cat([positive, scores], 1), label)
        loss.backward()
        optimizer.step()
        loss.item()
    return (time.process_time() - begun) / updates / batch
