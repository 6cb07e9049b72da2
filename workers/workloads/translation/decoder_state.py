"""What decoding remembers: keys and values that never move, and which of them are whose.

Beams of a sentence share their keys and values as the nodes of a tree: each node is a column, and a mask says which
are a hypothesis's ancestors. When hypotheses change places, only the mask is reordered, and all beams of a sentence
attend in one product, which suits the beams of 2 to 20 that people use.

Shapes: b sentences, k beams, h heads, d head_dim, s source positions; S and n are numbers of keys rounded up to whole
multiples of 16, of which the last are masked: softmax is some times as fast so.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_MULTIPLE = 16  # of the keys


@dataclass
class LayerCache:
    """Of a layer: keys and values of the tree (b * h, n, d) and of the source (b * h, S, d), room for more behind."""

    past: tuple[Tensor, Tensor]
    source: tuple[Tensor, Tensor]


@dataclass
class DecoderState:
    """What decoding remembers.

    `bias` (b, 1, 1, S) is added to scores of source positions, `ancestors` (b, k, n) to those of the tree's nodes: 0,
    or -inf for padding and for what is no ancestor; `itself` (k, k) is that of new nodes. `places`, one for each target
    position, are vectors (width,); `attention` (b, k, s) is the last layer's to the source, where it is wanted.
    """

    caches: list[LayerCache]
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
            cache.past = (
                _kept(cache.past[0], moved, heads, filled),
                _kept(cache.past[1], moved, heads, filled),
            )
            cache.source = (
                _kept(cache.source[0], moved, heads),
                _kept(cache.source[1], moved, heads),
            )
        self.bias, self.ancestors = self.bias[sentences], self.ancestors[sentences]


def _kept(
    tensor: Tensor, moved: tuple[Tensor, Tensor, int], heads: int, filled: int | None = None
) -> Tensor:
    """The first sentences of (b * h, n, d), those that move (from, to, how many there are) moved, in place."""
    begin, to, count = moved
    if len(to):
        by_sentence = tensor.view(-1, heads, *tensor.shape[1:])[:, :, :filled]
        by_sentence[to] = by_sentence[begin]
    return tensor[: count * heads]


def rounded(count: int) -> int:
    """The next multiple of 16."""
    return -(-count // _MULTIPLE) * _MULTIPLE
