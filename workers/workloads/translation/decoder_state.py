"""The state of decoding: cached keys and values that never move, and a mask of ancestors.

The beams of a sentence share their keys and values as the nodes of a tree: each node is a column,
and a mask marks the ancestors of each hypothesis. If hypotheses change places, only the mask is
reordered. All beams of a sentence attend in one product, which suits the usual 2 to 20 beams.

Shapes: b sentences, k beams, h heads, d head_dim, s source positions. S and n are numbers of keys,
rounded up to multiples of 16 with the rest masked, which makes softmax several times faster.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_MULTIPLE = 16  # of the numbers of keys


@dataclass
class LayerCache:
    """Keys and values of one layer.

    Args:
        past: of the tree, (b * h, n, d) each, with room for further nodes.
        source: of the source, (b * h, S, d) each.
    """

    past: tuple[Tensor, Tensor]
    source: tuple[Tensor, Tensor]


@dataclass
class DecoderState:
    """The state of decoding.

    Args:
        bias: for the scores of source positions, (b, 1, 1, S); 0, or -inf for padding.
        ancestors: for the scores of the tree's nodes, (b, k, n); 0 for ancestors, else -inf.
        itself: the same for new nodes, (k, k).
        places: one position embedding (width,) per target position.
    """

    caches: list[LayerCache]
    bias: Tensor
    ancestors: Tensor
    itself: Tensor
    places: list[Tensor]
    position: int = 0

    @property
    def beams(self) -> int:
        """k."""
        return self.itself.shape[0]

    def follow(self, parents: Tensor) -> None:
        """Continue from the hypotheses `parents` (b, k), numbered 0 to k - 1."""
        self.ancestors = self.ancestors.gather(1, parents[..., None].expand_as(self.ancestors))

    def grow(self) -> Tensor:
        """Add one node per hypothesis at the current position.

        Returns:
            The ancestors of the new nodes, (b, 1, k, n).
        """
        begin = self.position * self.beams
        self.ancestors.narrow(2, begin, self.beams).copy_(self.itself)
        return self.ancestors.narrow(2, 0, rounded(begin + self.beams)).unsqueeze(1)

    def keep(self, sentences: Tensor) -> None:
        """Keep only the given sentences; few of them move."""
        count = len(sentences)
        to = (sentences != torch.arange(count, device=sentences.device)).nonzero()[:, 0]
        moved = sentences[to], to, count
        heads = len(self.caches[0].source[0]) // len(self.bias)
        filled = rounded(self.position * self.beams)
        for cache in self.caches:
            keys, values = (_kept(part, moved, heads, filled) for part in cache.past)
            cache.past = keys, values
            keys, values = (_kept(part, moved, heads) for part in cache.source)
            cache.source = keys, values
        self.bias = self.bias[sentences]
        self.ancestors = self.ancestors[sentences]


def _kept(
    tensor: Tensor, moved: tuple[Tensor, Tensor, int], heads: int, filled: int | None = None
) -> Tensor:
    """Move sentences of (b * h, n, d) in place and return the kept ones.

    Args:
        moved: old places, new places, and the number of kept sentences.
        filled: number of columns in use; None for all.
    """
    begin, to, count = moved
    if len(to):
        by_sentence = tensor.view(-1, heads, *tensor.shape[1:])[:, :, :filled]
        by_sentence[to] = by_sentence[begin]
    return tensor[: count * heads]


def rounded(count: int) -> int:
    """The next multiple of 16."""
    return -(-count // _MULTIPLE) * _MULTIPLE
