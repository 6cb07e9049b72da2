"""How the Transformer may be taken apart; the model itself knows nothing of it."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from workers.workloads.base import ParallelPlan

from .model import Architecture, Transformer, padding_mask


def plan(architecture: Architecture) -> ParallelPlan:
    """Layers in order of execution, and which matrices are split by columns (heads, hidden units) or rows.

    Only the interleaved layout keeps the rows of a head together, so only it can be split for tensor parallelism.
    """
    a = architecture
    layers = [f"encoder.layers.{i}" for i in range(a.encoder_layers)]
    layers += [f"decoder.layers.{i}" for i in range(a.decoder_layers)]
    tensor: dict[str, str] = {}
    if a.layout == "interleaved":
        for attention in (
            "encoder.layers.*.attention",
            "decoder.layers.*.self_attention",
            "decoder.layers.*.cross_attention",
        ):
            tensor |= {f"{attention}.query": "column", f"{attention}.key_value": "column", f"{attention}.output": "row"}
        for side in ("encoder", "decoder"):
            tensor |= {f"{side}.layers.*.feed_forward.inner": "column", f"{side}.layers.*.feed_forward.outer": "row"}
    return ParallelPlan(
        layers=tuple(layers),
        tensor=tensor,
        num_heads=a.num_heads,
        embeddings=() if a.tied else ("embedding.tokens",),
        stages=f"{__name__}:cut",
    )


def cut(model: Transformer, num_stages: int) -> list[nn.Module]:
    """Parts of about equal cost, in order; they share the model's parameters, under the names these have in it.

    Each takes the keyword arguments `source` (b, s) and `target` (b, t), and what the stage before returned: nothing
    for the first, the encoder's hidden states (b, s, width), or its memory and the decoder's states (b, t, width).
    The last returns logits (b, t, v), padding included. The embedding is in every stage that embeds or scores; its
    gradient is the sum of theirs.

    Raises:
        ValueError: there are fewer layers than stages.
    """
    sides = ["encoder"] * model.architecture.encoder_layers + ["decoder"] * model.architecture.decoder_layers
    if not 1 <= num_stages <= len(sides):
        raise ValueError(f"a model of {len(sides)} layers is cut into 1 to {len(sides)} stages, got {num_stages}")
    costs = [2.0 if side == "encoder" else 3.0 for side in sides]
    bounds = _balanced(costs, num_stages)
    return [Stage(model, begin, end) for begin, end in pairwise(bounds)]


def _balanced(costs: list[float], num_parts: int) -> list[int]:
    """Bounds of contiguous parts whose largest sum is the least that can be."""
    best = {(0, 0): (0.0, [0])}  # (parts, items) -> (largest sum, bounds)
    for part in range(1, num_parts + 1):
        for end in range(part, len(costs) + 1):
            options = [
                (max(best[part - 1, begin][0], sum(costs[begin:end])), [*best[part - 1, begin][1], end])
                for begin in range(part - 1, end)
                if (part - 1, begin) in best
            ]
            best[part, end] = min(options)
    return best[num_parts, len(costs)][1]


class Stage(nn.Module):
    """Layers `begin` to `end` of a model, counted through encoder and decoder, with what comes before and after."""

    def __init__(self, model: Transformer, begin: int, end: int) -> None:
        super().__init__()
        a = model.architecture
        middle, last = a.encoder_layers, a.encoder_layers + a.decoder_layers
        self.starts_encoder, self.starts_decoder, self.ends = begin == 0, begin <= middle < end, end == last
        if begin < middle:
            self.encoder = _part(model.encoder, begin, min(end, middle))
        if end > middle:
            self.decoder = _part(model.decoder, max(begin, middle) - middle, end - middle)
        if self.starts_encoder or self.starts_decoder or (self.ends and a.tied):
            self.embedding = model.embedding
        if self.ends and model.projection is not None:
            self.projection = model.projection

    def forward(self, *hidden: Tensor, source: Tensor, target: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """See `cut`."""
        mask = padding_mask(source)
        memory = hidden[0] if hidden else self.embedding(source)
        if hasattr(self, "encoder"):
            memory = _run(self.encoder, memory, mask)
        if not hasattr(self, "decoder"):
            return memory
        x = _run(self.decoder, self.embedding(target) if self.starts_decoder else hidden[1], memory, mask)
        if not self.ends:
            return memory, x
        logits: Tensor = self.projection(x) if hasattr(self, "projection") else self.embedding.score(x)
        return logits


def _part(side: nn.Module, begin: int, end: int) -> nn.Module:
    """Some layers of an encoder or decoder, with its last norm where they reach the end; names stay."""
    layers = side.get_submodule("layers")
    part = nn.Module()
    part.layers = nn.ModuleDict({str(i): layers.get_submodule(str(i)) for i in range(begin, end)})
    if end == len(list(layers.children())):
        part.norm = side.get_submodule("norm")
    return part


def _run(part: nn.Module, x: Tensor, *context: Tensor) -> Tensor:
    for layer in part.get_submodule("layers").children():
        x = layer(x, *context)
    return part.get_submodule("norm")(x) if hasattr(part, "norm") else x
