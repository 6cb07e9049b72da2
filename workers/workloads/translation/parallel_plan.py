"""How the Transformer may be taken apart; the model itself knows nothing of it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from workers.parallel.balance import balanced
from workers.workload import ParallelPlan

from .attention_layouts import CROSS
from .model import Architecture, Transformer, padding_mask


def plan(architecture: Architecture) -> ParallelPlan:
    """Layers in order of execution, and which matrices are split by columns (heads, hidden units) or rows."""
    a = architecture
    layers = [f"encoder.layers.{i}" for i in range(a.encoder_layers)]
    layers += [f"decoder.layers.{i}" for i in range(a.decoder_layers)]
    tensor: dict[str, str] = {}
    for attention in (
        "encoder.layers.*.attention",
        "decoder.layers.*.self_attention",
        "decoder.layers.*.cross_attention",
    ):
        if a.kernel != "fused":  # which projects by itself and so needs the whole matrices
            tensor |= _split_attention(attention, a.layout)
    for side in ("encoder", "decoder"):
        tensor |= {
            f"{side}.layers.*.feed_forward.inner": "column",
            f"{side}.layers.*.feed_forward.outer": "row",
        }
    norms = [
        "encoder.layers.*.attention_norm",
        "decoder.layers.*.self_norm",
        "decoder.layers.*.cross_norm",
    ]
    norms += [
        f"{side}.{name}"
        for side in ("encoder", "decoder")
        for name in ("layers.*.feed_forward_norm", "norm")
    ]
    tensor |= dict.fromkeys(norms, "sequence")
    return ParallelPlan(
        layers=tuple(layers),
        tensor=tensor,
        num_heads=a.num_heads,
        embeddings=_tables(a),
        stages=f"{__name__}:cut",
    )


def _tables(a: Architecture) -> tuple[str, ...]:
    """Embeddings that are nothing else, which a parameter server may hold."""
    tables = () if a.ties_output else ("embedding.tokens",)
    return tables if a.ties_source else (*tables, "source_embedding.tokens")


def _split_attention(name: str, layout: str) -> dict[str, str]:
    """Heads shared out: rows of a head lie together in the interleaved layout, in blocks in the others."""
    output = {f"{name}.output": "row"}
    if layout == "packed" and not name.endswith(CROSS.rstrip(".")):
        return {f"{name}.query_key_value": "column:3", **output}
    key_value = "column" if layout == "interleaved" else "column:2"
    return {f"{name}.query": "column", f"{name}.key_value": key_value, **output}


def cut(model: Transformer, num_stages: int) -> list[nn.Module]:
    """Parts of about equal cost, in order; they share the model's parameters, under the names these have in it.

    A stage takes what the one before returned: nothing, the encoder's states (b, s, width), or its memory and the
    decoder's states (b, t, width); and by keyword `source` (b, s) and `shifted` (b, t). The last returns logits
    (b, t, v), padding included. The embedding is in every stage that embeds or scores.

    Raises:
        UsageError: there are fewer layers than stages.
    """
    a = model.architecture
    costs = [2.0] * a.encoder_layers + [3.0] * a.decoder_layers
    return [TransformerStage(model, part.start, part.stop) for part in balanced(costs, num_stages)]


class TransformerStage(nn.Module):
    """Layers `begin` to `end` of a model, counted through encoder and decoder, with what comes before and after."""

    def __init__(self, model: Transformer, begin: int, end: int) -> None:
        super().__init__()
        a = model.architecture
        middle, last = a.encoder_layers, a.encoder_layers + a.decoder_layers
        self.starts_encoder, self.starts_decoder, self.ends = (
            begin == 0,
            begin <= middle < end,
            end == last,
        )
        if begin < middle:
            self.encoder = _part(model.encoder, begin, min(end, middle))
        if end > middle:
            self.decoder = _part(model.decoder, max(begin, middle) - middle, end - middle)
        if self.starts_encoder and model.source_embedding is not None:
            self.source_embedding = model.source_embedding
        if (
            (self.starts_encoder and a.ties_source)
            or self.starts_decoder
            or (self.ends and a.ties_output)
        ):
            self.embedding = model.embedding
        if self.ends:
            for name in ("projection", "adaptive"):
                if getattr(model, name) is not None:
                    setattr(self, name, getattr(model, name))

    def forward(
        self, *hidden: Tensor, source: Tensor, shifted: Tensor
    ) -> Tensor | tuple[Tensor, Tensor]:
        """See `cut`."""
        mask = padding_mask(source)
        memory = hidden[0] if hidden else self._embed(source)
        if hasattr(self, "encoder"):
            memory = _run(self.encoder, memory, mask)
        if not hasattr(self, "decoder"):
            return memory
        x = _run(
            self.decoder,
            self.embedding(shifted) if self.starts_decoder else hidden[1],
            memory,
            mask,
        )
        if not self.ends:
            return memory, x
        return self._score(x)

    def _score(self, x: Tensor) -> Tensor:
        if hasattr(self, "adaptive"):
            adaptive: Any = self.adaptive
            logs: Tensor = adaptive.log_prob(x.flatten(0, -2))
            return logs.view(*x.shape[:-1], -1)
        score: Any = self.projection if hasattr(self, "projection") else self.embedding.score
        logits: Tensor = score(x)
        return logits

    def _embed(self, source: Tensor) -> Tensor:
        x: Tensor = (
            self.source_embedding if hasattr(self, "source_embedding") else self.embedding
        )(source)
        return x


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
