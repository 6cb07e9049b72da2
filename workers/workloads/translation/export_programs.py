"""Export of a trained model for other runtimes: torch.export programs and ONNX files.

    encoder       source ids (b, s)                                 -> memory (b, s, width)
    decoder step  ids (b,), source (b, s), memory (b, s, width),
                  keys and values (layers, b, h, t, d) of t earlier
                  positions                                         -> logits (b, v), keys, values

Sizes b, s and t are dynamic; ONNX accepts t = 0. The first id is BOS (2), with keys and values of
no position. The caller reorders the rows for beam search.
"""

import dataclasses
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from search_spaces.errors import UsageError
from workers.export import TOLERANCE, quiet

from .model import DecoderLayer, Transformer, padding_mask
from .vocabulary import BOS, EOS

Inputs = tuple[Tensor, ...]
_OUTPUTS = {"encoder": ["memory"], "decoder_step": ["logits", "new_keys", "new_values"]}


class EncoderProgram(nn.Module):
    """The encoder, see this module."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> Tensor:
        """Memory of source ids."""
        return self.model.encode(source, padding_mask(source))


class DecoderStepProgram(nn.Module):
    """One step of the decoder, see this module."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids: Tensor, source: Tensor, memory: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the next token, and keys and values with one more position."""
        mask = padding_mask(source)
        position = keys.shape[3]
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
        new_keys, new_values = zip(*grown, strict=True)
        return logits, torch.stack(new_keys), torch.stack(new_values)


def _mix(
    output: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> Tensor:
    mixed = nn.functional.scaled_dot_product_attention(query, key, value, mask)
    return cast(Tensor, output(mixed.transpose(1, 2).flatten(2)))


def write(model: Transformer, target: Path) -> dict[str, str]:
    """Write both programs as `NAME.pt2` and, if the packages are installed, as `NAME.onnx`.

    Returns:
        Name and description of each file, with the largest difference to the model's outputs.

    Raises:
        UsageError: a program does not compute the same function as the model.
    """
    # Every runtime supports torch's own attention.
    plain = Transformer(dataclasses.replace(model.architecture, kernel="sdpa"))
    plain.load_state_dict(model.state_dict())
    plain.eval().requires_grad_(False)
    found: dict[str, str] = {}
    modules = {"encoder": EncoderProgram(plain), "decoder_step": DecoderStepProgram(plain)}
    for name, module in modules.items():
        path = target / f"{name}.pt2"
        with quiet(), torch.no_grad():
            program = torch.export.export(
                module,
                examples(plain, name, 2, 5, 3),
                dynamic_shapes=_shapes(name),
                strict=False,
            )
            torch.export.save(program, path)
        difference = _difference(plain, module, name, torch.export.load(path).module(), 1)
        found[path.name] = (
            f"the {name.replace('_', ' ')} for torch.export.load; "
            f"outputs differ by at most {difference:.1g}"
        )
        if find_spec("onnx") and find_spec("onnxscript"):
            found |= _write_onnx(plain, module, program, name, path.with_suffix(".onnx"))
    return found


def _write_onnx(
    model: Transformer, module: nn.Module, program: Any, name: str, path: Path
) -> dict[str, str]:
    with quiet(), torch.no_grad():
        torch.onnx.export(
            program, f=str(path), dynamo=True, external_data=False, output_names=_OUTPUTS[name]
        )
    text = f"the {name.replace('_', ' ')} as ONNX"
    if not find_spec("onnxruntime"):
        return {path.name: f"{text} (not checked: onnxruntime is not installed)"}
    difference = _difference(model, module, name, OnnxSession(path), 0)
    return {path.name: f"{text}; in onnxruntime its outputs differ by at most {difference:.1g}"}


class OnnxSession:
    """An ONNX file in onnxruntime, called like the program it was exported from."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._names = [given.name for given in self._session.get_inputs()]

    def __call__(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Run the program."""
        arrays = dict(zip(self._names, [x.detach().numpy() for x in inputs], strict=True))
        found = tuple(torch.from_numpy(array) for array in self._session.run(None, arrays))
        return found[0] if len(found) == 1 else found


def examples(model: Transformer, name: str, sentences: int, length: int, position: int) -> Inputs:
    """Example inputs of a program; the second sentence is shorter than the first.

    Args:
        name: "encoder" or "decoder_step".
        sentences: b.
        length: s.
        position: t, the number of earlier positions.
    """
    a = model.architecture
    generator = torch.Generator().manual_seed(length)
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


def _difference(model: Transformer, module: nn.Module, name: str, other: Any, least: int) -> float:
    """Largest difference of outputs at several sizes, relative to their scale.

    Raises:
        UsageError: the difference is more than rounding.
    """
    worst = 0.0
    for sizes in ((2, 5, 3), (3, 9, 7), (1, 2, 1), (2, 4, 0)):
        if sizes[2] < least:
            continue
        inputs = examples(model, name, *sizes)
        with torch.no_grad():
            pairs = zip(_several(module(*inputs)), _several(other(*inputs)), strict=True)
        for expected, found in pairs:
            scale = expected.abs().max().clamp(min=1.0)
            worst = max(worst, float((found - expected).abs().max() / scale))
    if not worst <= TOLERANCE:
        raise UsageError(
            f"the exported {name} differs from the model by {worst:.2g}, "
            f"at most {TOLERANCE:.2g} is allowed"
        )
    return worst


def _several(outputs: Tensor | Inputs) -> Inputs:
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
