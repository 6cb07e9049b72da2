"""How the Transformer is divided for parallel training; the model itself does not know."""

from typing import Any, cast

from torch import Tensor, nn

from workers.parallel.mesh import balanced
from workers.workload import ParallelPlan

from .attention_layouts import CROSS
from .model import Architecture, Transformer, padding_mask


def plan(architecture: Architecture) -> ParallelPlan:
    """Layers in order of execution, and the matrices to split by columns or by rows."""
    a = architecture
    layers = [f"encoder.layers.{i}" for i in range(a.encoder_layers)]
    layers += [f"decoder.layers.{i}" for i in range(a.decoder_layers)]
    tensor: dict[str, str] = {}
    for attention in (
        "encoder.layers.*.attention",
        "decoder.layers.*.self_attention",
        "decoder.layers.*.cross_attention",
    ):
        if a.kernel != "fused":  # the fused kernel needs the whole matrices
            tensor |= _split_attention(attention, a.layout)
    for side in ("encoder", "decoder"):
        tensor |= {
            f"{side}.layers.*.feed_forward.inner": "column",
            f"{side}.layers.*.feed_forward.outer": "row",
        }
    return ParallelPlan(
        layers=tuple(layers),
        tensor=tensor,
        num_heads=a.num_heads,
        # An embedding that is no output projection may be on a parameter server.
        embeddings=() if a.tied else ("embedding.tokens",),
        stages=f"{__name__}:cut",
    )


def _split_attention(name: str, layout: str) -> dict[str, str]:
    """How to divide the heads: they are contiguous rows if interleaved, else blocks."""
    output = {f"{name}.output": "row"}
    if layout == "packed" and not name.endswith(CROSS.rstrip(".")):
        return {f"{name}.query_key_value": "column:3", **output}
    key_value = "column" if layout == "interleaved" else "column:2"
    return {f"{name}.query": "column", f"{name}.key_value": key_value, **output}


def cut(model: Transformer, num_stages: int) -> list[nn.Module]:
    """Consecutive stages of similar cost that share the parameters of the model, with their names.

    A stage takes the output of the stage before it: nothing, the encoder states (b, s, width), or
    memory and the decoder states (b, t, width); and by keyword `source` (b, s) and `shifted` (b,
    t). The last stage returns logits (b, t, v), including padding. Every stage that embeds or
    scores has the embedding.

    Raises:
        UsageError: there are fewer layers than stages.
    """
    a = model.architecture
    costs = [2.0] * a.encoder_layers + [3.0] * a.decoder_layers
    return [TransformerStage(model, part.start, part.stop) for part in balanced(costs, num_stages)]


class TransformerStage(nn.Module):
    """Layers `begin` to `end` of a model, counted through encoder and decoder.

    The first stages also embed; the last one also scores.
    """

    def __init__(self, model: Transformer, begin: int, end: int) -> None:
        super().__init__()
        a = model.architecture
        middle = a.encoder_layers
        last = a.encoder_layers + a.decoder_layers
        self.starts_decoder = begin <= middle < end
        self.ends = end == last
        if begin < middle:
            self.encoder = _part(model.encoder, begin, min(end, middle))
        if end > middle:
            self.decoder = _part(model.decoder, max(begin, middle) - middle, end - middle)
        if begin == 0 or self.starts_decoder or (self.ends and a.tied):
            self.embedding = model.embedding
        if self.ends and model.projection is not None:
            self.projection = model.projection

    def forward(
        self, *hidden: Tensor, source: Tensor, shifted: Tensor
    ) -> Tensor | tuple[Tensor, Tensor]:
        """See `cut`."""
        mask = padding_mask(source)
        memory = hidden[0] if hidden else self.embedding(source)
        if hasattr(self, "encoder"):
            memory = _run(self.encoder, memory, mask)
        if not hasattr(self, "decoder"):
            return memory
        x = self.embedding(shifted) if self.starts_decoder else hidden[1]
        x = _run(self.decoder, x, memory, mask)
        return self._score(x) if self.ends else (memory, x)

    def _score(self, x: Tensor) -> Tensor:
        score: Any = self.projection if hasattr(self, "projection") else self.embedding.score
        return cast(Tensor, score(x))


def _part(side: nn.Module, begin: int, end: int) -> nn.Module:
    """Layers `begin` to `end` of an encoder or decoder under their old names.

    Includes the final norm if they reach the end.
    """
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
