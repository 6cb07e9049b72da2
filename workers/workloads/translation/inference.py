"""The decoder one position at a time, with cached keys and values.

The beams of a sentence share their keys and values as the nodes of a tree: each node is a column,
and a mask marks the ancestors of each hypothesis. If hypotheses change places, only the mask is
reordered. All beams of a sentence attend in one product, which suits the usual 2 to 20 beams.

Shapes: b sentences, k beams, h heads, d head_dim, s source positions, v entries of the vocabulary,
n nodes, which is a multiple of 16, because softmax is several times faster then.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .model import DecoderLayer, Transformer, padding_mask
from .vocabulary import EOS

_ROWS = 64  # number of rows for which oneDNN packs the weights
_NODES = 16  # numbers of nodes are multiples of this
BLOCK = 64  # numbers of scores are multiples of this, see `best_tokens`


def product(weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    """Maps x (n, in) to (n, out) by a weight (out, in) in the format of autocast.

    On CPUs oneDNN packs the weight once, which is twice as fast as torch's default, and as exact.
    Later changes of weight and bias have no effect.
    """
    device = weight.device.type
    if torch.is_autocast_enabled(device):
        weight = weight.to(torch.get_autocast_dtype(device))
    weight, bias = weight.detach(), bias.detach().to(weight.dtype)
    library: Any = torch.backends.mkldnn
    packs = device == "cpu" and weight.dtype in (torch.float32, torch.bfloat16)
    if not (packs and library.is_available()):
        return lambda x: nn.functional.linear(x.to(weight.dtype), weight, bias).to(x.dtype)
    operations: Any = torch.ops.mkldnn
    packed = operations._reorder_linear_weight.default(weight, _ROWS)
    multiply = operations._linear_pointwise.default
    return lambda x: multiply(x.to(weight.dtype), packed, bias, "none", [], "").to(x.dtype)


@dataclass
class DecoderState:
    """The state of decoding.

    Args:
        past: keys and values of the nodes, (2, b, h, n, d) for each layer, with room for more.
        source: keys and values of the source, (2, b, h, s, d) for each layer.
        bias: of the scores of source positions, (b, 1, 1, s): 0, or -inf for padding.
        ancestors: of the scores of nodes, (b, k, n): 0 for those that a hypothesis continues, or
            -inf.
        places: position embeddings, (positions, width).
    """

    past: list[Tensor]
    source: list[Tensor]
    bias: Tensor
    ancestors: Tensor
    places: Tensor
    position: int = 0

    def follow(self, parents: Tensor) -> None:
        """Continue from the hypotheses `parents` (b, k), numbered 0 to k - 1."""
        self.ancestors = self.ancestors.gather(1, parents[..., None].expand_as(self.ancestors))

    def keep(self, sentences: Tensor) -> None:
        """Keep only the given sentences."""
        self.past = [part[:, sentences] for part in self.past]
        self.source = [part[:, sentences] for part in self.source]
        self.bias = self.bias[sentences]
        self.ancestors = self.ancestors[sentences]


class LayerStep:
    """The matrix products of a decoder layer."""

    def __init__(self, layer: DecoderLayer) -> None:
        self.layer = layer
        width = layer.self_norm.normalized_shape[0]
        self.project = product(*layer.self_attention.packed())
        weight, bias = layer.cross_attention.packed()
        self.query = product(weight[:width], bias[:width])
        self.memory = product(weight[width:], bias[width:])
        self.output, self.mix, self.inner, self.outer = (
            product(one.weight, one.bias)
            for one in (
                layer.self_attention.output,
                layer.cross_attention.output,
                layer.feed_forward.inner,
                layer.feed_forward.outer,
            )
        )

    def step(self, x: Tensor, state: DecoderState, past: Tensor, source: Tensor) -> Tensor:
        """Process one position x (b * k, width) of each hypothesis; same shape."""
        b, k, _ = state.ancestors.shape
        shape = (b, k, -1, past.shape[-1])
        query, *new = self.project(self.layer.self_norm(x)).chunk(3, -1)
        begin = state.position * k
        for part, one in zip(past, new, strict=True):
            part[:, :, begin : begin + k] = one.view(shape).transpose(1, 2)
        n = _rounded(begin + k)
        tree = state.ancestors[:, None, :, :n]
        x = x + self.output(_attend(query.view(shape), past[..., :n, :], tree))
        query = self.query(self.layer.cross_norm(x)).view(shape)
        x = x + self.mix(_attend(query, source, state.bias))
        return x + self.outer(self.inner(self.layer.feed_forward_norm(x)).relu_())


def _attend(query: Tensor, keys_values: Tensor, bias: Tensor) -> Tensor:
    """Attention of queries (b, k, h, d) over (2, b, h, n, d), with a bias of scores (b, h, k, n).

    Returns:
        Output (b * k, h * d).
    """
    query = query.transpose(1, 2)
    keys, values = keys_values
    if query.shape[2] == 1:  # for several queries on a CPU, torch's own attention is slower
        found = nn.functional.scaled_dot_product_attention(query, keys, values, bias)
        return found.flatten(1)
    scores = (query * query.shape[-1] ** -0.5) @ keys.transpose(2, 3)
    mixed: Tensor = scores.add_(bias).softmax(-1) @ values
    return mixed.transpose(1, 2).flatten(0, 1).flatten(1)


def _rounded(count: int) -> int:
    return -(-count // _NODES) * _NODES


class Decoder:
    """Decodes by a model in eval mode with any attention layout, one position at a time.

    Weights are copied to a fast layout; later changes of the model have no effect.
    """

    def __init__(self, model: Transformer) -> None:
        self.model = model
        weight = model.output_weight
        count = -len(weight) % BLOCK
        bias = weight.new_zeros(len(weight) + count)
        bias[:EOS] = bias[len(weight) :] = -math.inf  # padding, unknown and BOS never follow
        self.score = product(nn.functional.pad(weight, (0, 0, 0, count)), bias)
        layers = model.decoder.layers
        self.layers = [LayerStep(layer) for layer in layers if isinstance(layer, DecoderLayer)]

    def start(self, source: Tensor, beams: int, room: int) -> DecoderState:
        """Encode sources (b, s) and allocate `room` target positions of `beams` hypotheses each."""
        mask = padding_mask(source)
        memory = self.model.encode(source, mask)
        b, s, _ = memory.shape
        h, d = self.model.architecture.num_heads, self.model.architecture.head_dim
        found = [
            layer.memory(memory.flatten(0, 1)).view(b, s, 2, h, d).permute(2, 0, 3, 1, 4)
            for layer in self.layers
        ]
        nodes = _rounded(room * beams)
        past = [part.new_zeros(2, b, h, nodes, d) for part in found]
        bias = memory.new_zeros(mask.shape).masked_fill_(~mask, -math.inf)
        ancestors = memory.new_full((b, beams, nodes), -math.inf)
        places = self.model.embedding.places(room, source.device)
        kept = [part.contiguous() for part in found]
        return DecoderState(past, kept, bias, ancestors, places)

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Decode ids (b * k,) at the next position.

        Returns:
            Logits (b * k, v) of what follows, with further columns of -inf.
        """
        k = state.ancestors.shape[1]
        begin = state.position * k
        state.ancestors.diagonal(begin, 1, 2).fill_(0.0)  # a new node is its own ancestor
        x = self.model.embedding(ids, state.places[state.position])
        for layer, past, source in zip(self.layers, state.past, state.source, strict=True):
            x = layer.step(x, state, past, source)
        state.position += 1
        return self.score(self.model.decoder.norm(x))


def best_tokens(logs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (m, v) and their columns, (m, count) each.

    They lie in the blocks with the largest maxima, so only those blocks are sorted. v is a multiple
    of `BLOCK`.
    """
    blocks = torch.unflatten(logs, 1, (-1, BLOCK)).amax(2)
    chosen = blocks.topk(min(count, blocks.shape[1])).indices
    columns = BLOCK * chosen[..., None] + torch.arange(BLOCK, device=logs.device)
    index = columns.flatten(1)
    values, places = logs.gather(1, index).topk(min(count, index.shape[1]))
    return values, index.gather(1, places)
