"""A small workload with all that strategies cut: embeddings, attention, feed-forward, norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from workers.context import Context
from workers.device.precision import wide
from workers.parallel.mesh import balanced
from workers.protocol import Metric
from workers.training import TRAINING_METRICS
from workers.workload import ParallelPlan
from workers.workloads._declarative_workload import TrainedWorkload


class ToyAttention(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.head_dim = width // num_heads
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.query(x), *self.key_value(x).chunk(2, -1)
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = ToyAttention(width, num_heads)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.outer(functional.relu(self.inner(self.feed_forward_norm(x)))))


class Model(nn.Module):
    def __init__(
        self, vocabulary: int, width: int, num_layers: int, num_heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, num_heads, dropout) for _ in range(num_layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Toy(TrainedWorkload):
    """Next-token prediction on random sequences of several lengths; token 0 is padding."""

    name = "toy"
    summary = "a test"
    goals = ("minimize loss",)
    metrics = (Metric("loss", "minimize"), Metric("perplexity", "minimize"), *TRAINING_METRICS)
    defaults: Mapping[str, Any] = {
        "learning_rate": 3e-3,
        "vocabulary": 50,
        "width": 32,
        "num_layers": 4,
        "num_heads": 4,
        "dropout": 0.0,
        "rows": 8,
        "num_batches": 10,
        "optimizer": "adamw",
        "tied": False,
        "max_epochs": 2,
    }

    @classmethod
    def space(cls, hardware: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        pass

    def build_model(self) -> nn.Module:
        torch.manual_seed(self.seed)
        sizes = [
            self.option(name)
            for name in ("vocabulary", "width", "num_layers", "num_heads", "dropout")
        ]
        model = Model(*sizes)
        if self.option("tied"):
            model.head.weight = model.embedding.weight
        return model

    def train_batches(self, epoch: int) -> Iterator[dict[str, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed * 1000 + epoch)
        for index in range(self.option("num_batches")):
            length = 6 + 2 * (index % 3)
            tokens = torch.randint(
                1, self.option("vocabulary"), (self.option("rows"), length), generator=generator
            )
            tokens[:, 1::2] = tokens[
                :, :-1:2
            ]  # every second token repeats the one before: learnable
            lengths = torch.randint(3, length + 1, (len(tokens), 1), generator=generator)
            tokens[torch.arange(length)[None] >= lengths] = 0
            yield {"tokens": tokens}

    def inputs(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return (batch["tokens"][:, :-1],)

    def criterion(self, output: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        target = batch["tokens"][:, 1:]
        return functional.cross_entropy(
            wide(output).flatten(0, 1), target.flatten(), ignore_index=0, reduction="sum"
        )

    def weight(self, batch: Mapping[str, Tensor]) -> float:
        return float((batch["tokens"][:, 1:] != 0).sum())

    def evaluate(self, model: nn.Module, device: torch.device) -> Mapping[str, float]:
        held_out = [batch for _, batch in zip(range(3), self.train_batches(999), strict=False)]
        moved = [{key: value.to(device) for key, value in batch.items()} for batch in held_out]
        total = sum(float(self.criterion(model(*self.inputs(batch)), batch)) for batch in moved)
        return {"loss": total / sum(self.weight(batch) for batch in moved)}

    def plan(self, model: nn.Module) -> ParallelPlan:
        return ParallelPlan(
            layers=tuple(f"layers.{i}" for i in range(len(model.layers))),
            tensor={
                "layers.*.attention.query": "column",
                "layers.*.attention.key_value": "column:2",
                "layers.*.attention.output": "row",
                "layers.*.inner": "column",
                "layers.*.outer": "row",
                **({} if self.option("tied") else {"embedding": "vocabulary"}),
            },
            num_heads=self.option("num_heads"),
            embeddings=() if self.option("tied") else ("embedding",),
            stages="toy:stages",
        )


class Stage(nn.Module):
    def __init__(self, model: Model, layers: range) -> None:
        super().__init__()
        first, last = layers.start == 0, layers.stop == len(model.layers)
        self.embedding = model.embedding if first else None
        self.layers = nn.ModuleList(model.layers[i] for i in layers)
        self.norm, self.head = (model.norm, model.head) if last else (None, None)

    def forward(self, *hidden: Tensor, tokens: Tensor) -> Tensor:
        x = hidden[0] if self.embedding is None else self.embedding(tokens[:, :-1])
        for layer in self.layers:
            x = layer(x)
        return x if self.norm is None else self.head(self.norm(x))


def stages(model: Model, num_stages: int) -> list[nn.Module]:
    return [Stage(model, layers) for layers in balanced([1.0] * len(model.layers), num_stages)]


def objective(context: Context) -> dict[str, float]:
    return Toy(context.params, {}, context.assignment.fixed, seed=context.seed).run(context)
