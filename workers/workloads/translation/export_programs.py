"""Forms of a trained model for other runtimes: encoder and decoder step as torch.export programs and as ONNX.

    encoder       source ids (b, s)                                            -> memory (b, s, width)
    decoder step  ids (b,), source (b, s), memory (b, s, width), and keys and
                  values (layers, b, h, t, d) of the t positions before        -> logits (b, v), keys and values

Sizes b, s and t are free; ONNX takes a t of 0. The first id is BOS (2), with keys and values of no position; rows of
beams are the caller's to reorder.
"""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from search_spaces.errors import UsageError
from workers.export import TOLERANCE, quiet

from .model import DecoderLayer, Transformer, padding_mask
from .vocabulary import BOS, EOS

Inputs = tuple[Tensor, ...]
_OUTPUTS = {"encoder": ["memory"], "decoder_step": ["logits", "new_keys", "new_values"]}


class EncoderProgram(nn.Module):
    """See this module."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> Tensor:
        """Memory of source ids."""
        return self.model.encode(source, padding_mask(source))


class DecoderStepProgram(nn.Module):
    """See this module."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids: Tensor, source: Tensor, memory: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of what follows, and keys and values with one position more."""
        mask, position = padding_mask(source), keys.shape[3]
        embedding = self.model.embedding
        x = embedding(ids[:, None], embedding.places(position + 1, ids.device)[position:])
        grown: list[tuple[Tensor, Tensor]] = []
        for number, layer in enumerate(self.model.decoder.layers):
            assert isinstance(layer, DecoderLayer)
            own = layer.self_attention
            query, key, value = own.project(layer.self_norm(x))
            past = torch.cat([keys[number], key], 2), torch.cat([values[number], value], 2)
            grown.append(past)
            x = x + _mix(own.output, query, *past, None)
            cross = layer.cross_attention
            query = cross.project_query(layer.cross_norm(x))
            x = x + _mix(cross.output, query, *cross.project_memory(memory), mask)
            x = x + layer.feed_forward(layer.feed_forward_norm(x))
        logits = self.model.score(self.model.decoder.norm(x)[:, 0])
        return (
            logits,
            torch.stack([key for key, _ in grown]),
            torch.stack([value for _, value in grown]),
        )


def _mix(
    output: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> Tensor:
    mixed: Tensor = output(
        functional.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).flatten(2)
    )
    return mixed


def write(model: Transformer, target: Path) -> dict[str, str]:
    """Write both forms into a folder, each as `NAME.pt2` and, where the packages are installed, as `NAME.onnx`.

    Returns:
        Name of each file, what it is, and by how much its outputs differ from the model's.

    Raises:
        UsageError: a form computes something else than the model.
    """
    plain = _plain(model)
    found: dict[str, str] = {}
    for name, form in (
        ("encoder", EncoderProgram(plain)),
        ("decoder_step", DecoderStepProgram(plain)),
    ):
        with quiet(), torch.no_grad():
            inputs, shapes = examples(plain, name, 2, 5, 3), _shapes(name)
            program = torch.export.export(form, inputs, dynamic_shapes=shapes, strict=False)
            torch.export.save(program, target / f"{name}.pt2")
        differs = _difference(
            plain, form, name, torch.export.load(target / f"{name}.pt2").module(), 1
        )
        found[f"{name}.pt2"] = (
            f"the {name.replace('_', ' ')} for torch.export.load; outputs differ by at most {differs:.1g}"
        )
        if find_spec("onnx") and find_spec("onnxscript"):
            found |= _write_onnx(plain, form, program, name, target / f"{name}.onnx")
    return found


def _write_onnx(
    model: Transformer, form: nn.Module, program: Any, name: str, path: Path
) -> dict[str, str]:
    with quiet(), torch.no_grad():
        torch.onnx.export(
            program, f=str(path), dynamo=True, external_data=False, output_names=_OUTPUTS[name]
        )
    if not find_spec("onnxruntime"):
        return {
            path.name: f"the {name.replace('_', ' ')} as ONNX (not checked: onnxruntime is not installed)"
        }
    differs = _difference(model, form, name, OnnxSession(path), 0)
    return {
        path.name: f"the {name.replace('_', ' ')} as ONNX; in onnxruntime its outputs differ by at most {differs:.1g}"
    }


class OnnxSession:
    """An ONNX file in onnxruntime, called as the form that it was made of."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._names = [given.name for given in self._session.get_inputs()]

    def __call__(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Its outputs."""
        arrays = dict(zip(self._names, [x.detach().numpy() for x in inputs], strict=True))
        found = tuple(torch.from_numpy(array) for array in self._session.run(None, arrays))
        return found[0] if len(found) == 1 else found


def examples(model: Transformer, name: str, sentences: int, length: int, position: int) -> Inputs:
    """Inputs of a form: the second sentence is shorter than the first; keys and values of `position` positions."""
    a, generator = model.architecture, torch.Generator().manual_seed(length)
    source = torch.randint(EOS + 1, a.vocabulary_size, (sentences, length), generator=generator)
    source[:, -1] = EOS
    if sentences > 1 and length > 1:
        source[1, -1] = 0
    if name == "encoder":
        return (source,)
    shape = (a.decoder_layers, sentences, a.num_heads, position, a.head_dim)
    past = [torch.randn(shape, generator=generator) for _ in range(2)]
    return (
        torch.full((sentences,), BOS),
        source,
        torch.randn(sentences, length, a.width, generator=generator),
        *past,
    )


def _shapes(name: str) -> tuple[dict[int, Any], ...]:
    free = torch.export.Dim.DYNAMIC
    if name == "encoder":
        return ({0: free, 1: free},)
    past = {1: free, 3: free}
    return {0: free}, {0: free, 1: free}, {0: free, 1: free}, past, past


def _difference(model: Transformer, form: nn.Module, name: str, other: Any, least: int) -> float:
    """Largest difference relative to the outputs' scale, at several sizes.

    Raises:
        UsageError: it is more than rounding.
    """
    worst = 0.0
    for sizes in ((2, 5, 3), (3, 9, 7), (1, 2, 1), (2, 4, 0)):
        if sizes[2] < least:
            continue
        inputs = examples(model, name, *sizes)
        with torch.no_grad():
            pairs = zip(_several(form(*inputs)), _several(other(*inputs)), strict=True)
        for expected, found in pairs:
            worst = max(
                worst, float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))
            )
    if not worst <= TOLERANCE:
        raise UsageError(
            f"the exported {name} computes something else than the model: outputs differ by {worst:.2g}"
        )
    return worst


def _several(outputs: Tensor | Inputs) -> Inputs:
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def _plain(model: Transformer) -> Transformer:
    """The same function by torch's own attention, which every runtime has a form of."""
    copied = Transformer(dataclasses.replace(model.architecture, kernel="sdpa"))
    copied.load_state_dict(model.state_dict())
    return copied.eval().requires_grad_(False)
