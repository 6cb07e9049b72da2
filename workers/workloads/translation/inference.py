"""Fast inference: the encoder, and the decoder one position at a time with cached keys.

Shapes: b sentences, k beams, h heads, d head_dim, s source positions, t target positions so far, v
entries; S and n as in `decoder_state`.
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn

from .decoder_state import DecoderState, rounded
from .inference_layers import DecoderStep, EncoderStep, norm
from .matrix_products import product, product_of
from .model import DecoderLayer, EncoderLayer, Transformer
from .vocabulary import PAD

_BLOCK = 64  # columns per block of `best_tokens`


class Stepper:
    """Encoder and decoder of a model in eval mode, for any attention layout.

    Weights are copied to a fast layout; later changes of the model have no effect.

    Args:
        wants_attention: whether to fill `DecoderState.attention`.
    """

    def __init__(self, model: Transformer, *, wants_attention: bool = False) -> None:
        self.model = model
        self.wants_attention = wants_attention
        self.encoder = [
            EncoderStep(layer) for layer in model.encoder.layers if isinstance(layer, EncoderLayer)
        ]
        self.decoder = [
            DecoderStep(layer) for layer in model.decoder.layers if isinstance(layer, DecoderLayer)
        ]

    @cached_property
    def score(self) -> Callable[[Tensor], Tensor]:
        """A function from hidden states (m, width) to logits (m, v)."""
        if self.model.adaptive is not None:
            return self.model.score
        if self.model.projection is None:
            return product(self.model.output_weight, None)
        return product_of(self.model.projection)

    def rows(self, ids: Tensor, unused: int = 0) -> Callable[[Tensor], Tensor]:
        """Like `score`, for the entries `ids` (n,) only; the last `unused` get -inf."""
        if self.model.adaptive is not None:
            used = ids[: len(ids) - unused]
            return lambda x: nn.functional.pad(self.score(x)[:, used], (0, unused), value=-math.inf)
        bias = torch.zeros(len(ids), device=ids.device)
        bias[len(ids) - unused :] = -math.inf
        projection: Any = self.model.projection
        if projection is None or isinstance(projection, nn.Linear):
            return product(self.model.output_weight[ids], bias)
        packed = torch.ops.quantized.linear_prepack(self._quantised[ids], bias)
        return lambda x: torch.ops.quantized.linear_dynamic(x, packed, False)

    @cached_property
    def _quantised(self) -> Tensor:
        """The output projection's 8-bit matrix (v, width); its module stores another order."""
        projection: Any = self.model.projection
        return cast(Tensor, projection.weight())

    def start(self, source: Tensor, beams: int, room: int) -> DecoderState:
        """Encode sources (b, s) and allocate `room` target positions of `beams` hypotheses each."""
        b, s = source.shape
        mask = nn.functional.pad(source != PAD, (0, rounded(s) - s))[:, None, None]
        bias = torch.zeros(mask.shape, device=source.device).masked_fill_(~mask, -math.inf)
        x = (self.model.source_embedding or self.model.embedding)(source).flatten(0, 1)
        for layer in self.encoder:
            x = layer(x, bias, s)
        memory = norm(self.model.encoder.norm, x)
        caches = [layer.start(memory, bias, s, rounded(room * beams)) for layer in self.decoder]
        itself = bias.new_full((beams, beams), -math.inf).fill_diagonal_(0.0)
        ancestors = bias.new_full((b, beams, rounded(room * beams)), -math.inf)
        places = list(self.model.embedding.places(room, source.device).unbind())
        return DecoderState(caches, bias, ancestors, itself, places, s)

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Decode ids (b * k,) at the next position.

        Returns:
            Hidden states (b * k, width), ready for `score`.
        """
        x = self.model.embedding(ids, state.places[state.position])
        tree = state.grow()
        weights = None
        for layer, cache in zip(self.decoder, state.caches, strict=True):
            x, weights = layer.step(x, state, cache, tree)
        if self.wants_attention and weights is not None:
            by_head = weights.view(len(state.bias), -1, *weights.shape[1:]).float()
            state.attention = by_head.mean(1)[..., : state.source_length]
        state.position += 1
        return norm(self.model.decoder.norm, x)


def best_tokens(logs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (n, v) and their columns, (n, count) each.

    They lie in the blocks with the largest maxima, so only those blocks are sorted.
    """
    width = logs.shape[1]
    count = min(count, width)
    blocks = width // _BLOCK
    if blocks <= count:
        return logs.topk(count)
    maxima = torch.unflatten(logs[:, : _BLOCK * blocks], 1, (blocks, _BLOCK)).amax(2)
    chosen = maxima.topk(count).indices
    index = (_BLOCK * chosen[..., None] + torch.arange(_BLOCK, device=logs.device)).flatten(1)
    if width % _BLOCK:
        rest = torch.arange(_BLOCK * blocks, width, device=logs.device).expand(len(logs), -1)
        index = torch.cat([index, rest], 1)
    values, places = logs.gather(1, index).topk(count)
    return values, index.gather(1, places)
