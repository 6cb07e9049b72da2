"""The model in eval mode, the decoder one position at a time: weights laid out for it once, keys that never move.

Beams of a sentence share their keys and values as the nodes of a tree: each node is a column, and a mask says which
are a hypothesis's ancestors. When hypotheses change places, only the mask is reordered, and all beams of a sentence
attend in one product, which suits the beams of 2 to 20 that people use.

Shapes: b sentences, k beams, h heads, d head_dim, s source positions, t target positions so far, v entries; S and n as
in `layers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .layers import Cache, DecoderStep, EncoderStep, norm, rounded
from .model import DecoderLayer, EncoderLayer, Transformer
from .products import product, product_of
from .vocabulary import PAD


@dataclass
class State:
    """What decoding remembers.

    `bias` (b, 1, 1, S) is added to scores of source positions, `ancestors` (b, k, n) to those of the tree's nodes: 0,
    or -inf for padding and for what is no ancestor; `itself` (k, k) is that of new nodes. `places`, one for each target
    position, are vectors (width,); `attention` (b, k, s) is the last layer's to the source, where it is wanted.
    """

    caches: list[Cache]
    bias: Tensor
    ancestors: Tensor
    itself: Tensor
    places: list[Tensor]
    source_length: int
    position: int = 0
    attention: Tensor | None = None

    @property
    def beams(self) -> int:
        """k."""
        return self.itself.shape[0]

    def follow(self, parents: Tensor) -> None:
        """Let hypotheses (b, k) go on from the hypotheses `parents`, 0 to k - 1."""
        self.ancestors = self.ancestors.gather(1, parents[..., None].expand_as(self.ancestors))

    def grow(self) -> Tensor:
        """The ancestors (b, 1, k, n) of hypotheses that each gain a node, at the present position."""
        begin = self.position * self.beams
        self.ancestors.narrow(2, begin, self.beams).copy_(self.itself)
        return self.ancestors.narrow(2, 0, rounded(begin + self.beams)).unsqueeze(1)

    def keep(self, sentences: Tensor) -> None:
        """Forget all sentences but those; few of them move."""
        count = len(sentences)
        to = (sentences != torch.arange(count, device=sentences.device)).nonzero()[:, 0]
        moved = sentences[to], to, count
        heads = len(self.caches[0].source[0]) // len(self.bias)
        for cache in self.caches:
            filled = rounded(self.position * self.beams)
            cache.past = _kept(cache.past[0], moved, heads, filled), _kept(cache.past[1], moved, heads, filled)
            cache.source = _kept(cache.source[0], moved, heads), _kept(cache.source[1], moved, heads)
        self.bias, self.ancestors = self.bias[sentences], self.ancestors[sentences]


def _kept(tensor: Tensor, moved: tuple[Tensor, Tensor, int], heads: int, filled: int | None = None) -> Tensor:
    """The first sentences of (b * h, n, d), those that move (from, to, how many there are) moved, in place."""
    begin, to, count = moved
    if len(to):
        by_sentence = tensor.view(-1, heads, *tensor.shape[1:])[:, :, :filled]
        by_sentence[to] = by_sentence[begin]
    return tensor[: count * heads]


class Stepper:
    """Encoder and decoder of a model in eval mode, whatever its attention layout; weights that change are not seen.

    Args:
        wants_attention: whether `State.attention` is kept.
    """

    def __init__(self, model: Transformer, *, wants_attention: bool = False) -> None:
        self.model, self.wants_attention = model, wants_attention
        self.encoder = [EncoderStep(layer) for layer in model.encoder.layers if isinstance(layer, EncoderLayer)]
        self.decoder = [DecoderStep(layer) for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]

    @cached_property
    def score(self) -> Callable[[Tensor], Tensor]:
        """Logits (m, v) of hidden states (m, width)."""
        if self.model.adaptive is not None:
            return self.model.score
        projection = self.model.projection
        return product(self.model.output_weight, None) if projection is None else product_of(projection)

    def rows(self, ids: Tensor, unused: int = 0) -> Callable[[Tensor], Tensor]:
        """As `score`, of some entries (n,) alone, of which the last `unused` get -inf."""
        if self.model.adaptive is not None:
            used = ids[: len(ids) - unused]
            return lambda x: functional.pad(self.score(x)[:, used], (0, unused), value=-math.inf)
        bias = torch.zeros(len(ids), device=ids.device)
        bias[len(ids) - unused :] = -math.inf
        projection: Any = self.model.projection
        if projection is None or isinstance(projection, nn.Linear):
            return product(self.model.output_weight[ids], bias)
        packed = torch.ops.quantized.linear_prepack(self._quantised[ids], bias)
        return lambda x: torch.ops.quantized.linear_dynamic(x, packed, False)

    @cached_property
    def _quantised(self) -> Tensor:
        """The output's 8-bit matrix (v, width), which its module keeps in another order."""
        projection: Any = self.model.projection
        weight: Tensor = projection.weight()
        return weight

    def start(self, source: Tensor, beams: int, room: int) -> State:
        """Nothing decoded yet: room for so many target positions of `beams` hypotheses of each source (b, s)."""
        b, s = source.shape
        mask = functional.pad(source != PAD, (0, rounded(s) - s))[:, None, None]
        bias = torch.zeros(mask.shape, device=source.device).masked_fill_(~mask, -math.inf)
        x = (self.model.source_embedding or self.model.embedding)(source).flatten(0, 1)
        for layer in self.encoder:
            x = layer(x, bias, s)
        memory = norm(self.model.encoder.norm, x)
        caches = [layer.start(memory, bias, s, rounded(room * beams)) for layer in self.decoder]
        itself = bias.new_full((beams, beams), -math.inf).fill_diagonal_(0.0)
        ancestors = bias.new_full((b, beams, rounded(room * beams)), -math.inf)
        places = list(self.model.embedding.places(room, source.device).unbind())
        return State(caches, bias, ancestors, itself, places, s)

    def step(self, ids: Tensor, state: State) -> Tensor:
        """Hidden states (b * k, width), ready for scoring, after ids (b * k,), which take the next position."""
        x = self.model.embedding(ids, state.places[state.position])
        tree, weights = state.grow(), None
        for layer, cache in zip(self.decoder, state.caches, strict=True):
            x, weights = layer.step(x, state, cache, tree)
        if self.wants_attention and weights is not None:
            by_head = weights.view(len(state.bias), -1, *weights.shape[1:]).float()
            state.attention = by_head.mean(1)[..., : state.source_length]
        state.position += 1
        return norm(self.model.decoder.norm, x)
