"""The review classifier: embedding, recurrent layers, pooling over the words, two classes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .data import PAD
from .recurrent import Recurrent


@dataclass(frozen=True)
class SentimentModelOptions:
    """Options of the model; the defaults are the published setting."""

    vocabulary: int = 30_000
    embedding_size: int = 125
    hidden_size: int = 100
    num_layers: int = 1
    cell: str = "gru"
    bidirectional: bool = False
    pooling: str = "last"
    dropout: float = 0.2
    kernel: str = "fused"
    layout: str = "batch_major"


class SentimentModel(nn.Module):
    """Maps reviews as word ids, padded in front, to the logits of bad and good."""

    def __init__(self, options: SentimentModelOptions) -> None:
        super().__init__()
        self.options = options
        self.embedding = nn.Embedding(options.vocabulary, options.embedding_size, padding_idx=PAD)
        nn.init.uniform_(self.embedding.weight, -0.05, 0.05)
        self.recurrent = Recurrent(
            options.cell,
            (options.embedding_size, options.hidden_size),
            options.num_layers,
            options.bidirectional,
            options.kernel,
            options.layout,
        )
        self.dropout = nn.Dropout(options.dropout)
        self.output = nn.Linear(options.hidden_size * (1 + options.bidirectional), 2)

    def forward(self, words: Tensor) -> Tensor:
        """(batch, steps) ids to (batch, 2) logits."""
        time_major = self.options.layout == "time_major"
        ids = words.t().contiguous() if time_major else words
        states = self.recurrent(self.dropout(self.embedding(ids)))
        states = states if time_major else states.transpose(0, 1)
        return self.output(self.dropout(self._pool(states, words)))  # type: ignore[no-any-return]

    def _pool(self, states: Tensor, words: Tensor) -> Tensor:
        """(steps, batch, size) to (batch, size), ignoring padding."""
        real = (words != PAD).t().unsqueeze(-1)
        if self.options.pooling == "mean":
            return (states * real).sum(0) / real.sum(0).clamp(min=1)
        if self.options.pooling == "max":
            return states.masked_fill(~real, torch.finfo(states.dtype).min).amax(0)
        if not self.options.bidirectional:
            return states[-1]
        forward, backward = states.chunk(2, dim=-1)
        # The backward direction ends at the first word of the review.
        first = real.squeeze(-1).int().argmax(0)
        at = first.view(1, -1, 1).expand(1, -1, backward.shape[-1])
        return torch.cat([forward[-1], backward.gather(0, at).squeeze(0)], dim=-1)
