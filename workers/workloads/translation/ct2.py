"""Conversion of exported models to CTranslate2, and translation by its C++ engine in int8.

Needs the extra `ctranslate2` (https://opennmt.net/CTranslate2). Weights are stored in fp32 or int8.
Its beam search divides by length^a, which is `SearchOptions.length_base` 0 here; greedy
translations are the same.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from search_spaces.errors import DataError, UsageError, needs

from . import attention_layouts
from .beam_search import SearchOptions
from .model import Transformer, sinusoids
from .shortlist import Shortlist
from .translator import VOCABULARY, Translator
from .vocabulary import Vocabulary, save

_MAP = "vmap.txt"


def convert(
    folder: Path, target: Path, quantisation: str | None = "int8", shortlist: int | None = None
) -> None:
    """Write the exported model in `folder` to the new folder `target`.

    Args:
        quantisation: "int8", or None for fp32.
        shortlist: number of target entries per source entry that the engine may use; None for all.

    Raises:
        DataError: see `Translator.load`.
        UsageError: ctranslate2 is not installed, or does not support this architecture.
    """
    specs = _package().specs
    translator = Translator.load(folder)
    model = translator.model
    a = model.architecture
    if a.cutoffs:
        raise UsageError("CTranslate2 does not support an adaptive softmax")
    spec = specs.TransformerSpec.from_config(
        (a.encoder_layers, a.decoder_layers), a.num_heads, pre_norm=True
    )
    for side, module in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        _norm(side.layer_norm, module.norm)
        side.position_encodings.encodings = _positions(model, side is spec.encoder)
        for layer, part in zip(side.layer, module.layers, strict=True):
            _layer(layer, part)
    sources = model.source_embedding or model.embedding
    spec.encoder.embeddings[0].weight = _array(sources.tokens.weight)
    spec.decoder.embeddings.weight = _array(model.embedding.tokens.weight)
    spec.decoder.projection.weight = _array(model.output_weight)
    tokens = [translator.vocabulary.piece(i) for i in range(a.vocabulary_size)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.decoder_start_token = "<s>"
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=quantisation)
    target.mkdir(parents=True)
    if shortlist is None:
        spec.save(str(target))
    else:
        known = Shortlist.load(folder, shortlist, a.vocabulary_size)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
            file.writelines(_rules(known, tokens))
            file.flush()
            spec.register_vocabulary_mapping(file.name)
            spec.save(str(target))
    save(translator.vocabulary, target / VOCABULARY)


class Engine:
    """A model written by `convert`; translates text like `Translator`, with its built-in shortlist.

    Raises:
        DataError: the folder does not hold such a model.
        UsageError: ctranslate2 is not installed.
    """

    def __init__(self, folder: Path, threads: int = 1) -> None:
        package = _package()
        try:
            self.vocabulary = Vocabulary((folder / VOCABULARY).read_bytes())
            self._shortlist = (folder / _MAP).exists()
            self._translator: Any = package.Translator(
                str(folder), device="cpu", intra_threads=threads
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise DataError(f"{folder} does not hold a CTranslate2 model: {error}") from None

    def translate(self, lines: list[str], search: SearchOptions) -> list[str]:
        """A translation of each line; empty lines stay empty."""
        wanted = [i for i, line in enumerate(lines) if line.strip()]
        sources = self.vocabulary.encode([lines[i] for i in wanted])
        found = self._translator.translate_batch(
            [[self.vocabulary.piece(token) for token in ids] for ids in sources],
            beam_size=search.beam,
            max_batch_size=search.batch,
            length_penalty=search.length_penalty,
            max_decoding_length=search.max_length(max(map(len, sources), default=0) + 1, 1 << 16),
            coverage_penalty=search.coverage_penalty,
            disable_unk=True,
            use_vmap=self._shortlist,
        )
        ids = [[self.vocabulary.id(piece) for piece in result.hypotheses[0]] for result in found]
        results = [""] * len(lines)
        for i, text in zip(wanted, self.vocabulary.decode(ids), strict=True):
            results[i] = text
        return results


def _rules(shortlist: Shortlist, tokens: list[str]) -> Iterator[str]:
    """Lines "source entry, tab, target entries"; an empty source entry means every source."""
    yield "\t" + " ".join(tokens[i] for i in shortlist.frequent.tolist()) + "\n"
    for token, row in zip(tokens, shortlist.likeliest.tolist(), strict=True):
        likeliest = [tokens[i] for i in row if i]
        if likeliest:
            yield f"{token}\t{' '.join(likeliest)}\n"


def _package() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise UsageError(needs("this export", "CTranslate2", "ctranslate2")) from None
    return ctranslate2


def _layer(spec: Any, layer: nn.Module) -> None:
    decodes = hasattr(layer, "cross_attention")
    name = "self_attention" if decodes else "attention"
    _attention(spec.self_attention, layer, name, ("query", "key", "value"))
    _norm(spec.self_attention.layer_norm, layer.self_norm if decodes else layer.attention_norm)
    if decodes:
        _attention(spec.attention, layer, "cross_attention", ("query",), ("key", "value"))
        _norm(spec.attention.layer_norm, layer.cross_norm)
    _norm(spec.ffn.layer_norm, layer.feed_forward_norm)
    for target, part in ((spec.ffn.linear_0, "inner"), (spec.ffn.linear_1, "outer")):
        _linear(target, layer.get_submodule(f"feed_forward.{part}"))


def _attention(spec: Any, layer: nn.Module, name: str, *groups: tuple[str, ...]) -> None:
    """Copy the stacked input projections of each group, then the output projection."""
    attention: Any = layer.get_submodule(name)
    prefix = f"{name}."  # `attention_layouts` recognises cross-attention by its name
    state = {prefix + key: tensor for key, tensor in attention.state_dict().items()}
    parts = attention_layouts.canonical(state, attention.layout, attention.head_dim)
    for target, group in zip(spec.linear, groups, strict=False):
        target.weight = _array(torch.cat([parts[f"{prefix}{part}.weight"] for part in group]))
        target.bias = _array(torch.cat([parts[f"{prefix}{part}.bias"] for part in group]))
    _linear(spec.linear[len(groups)], attention.output)


def _linear(spec: Any, linear: Any) -> None:
    spec.weight = _array(linear.weight)
    spec.bias = _array(linear.bias)


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma = _array(norm.weight)
    spec.beta = _array(norm.bias)


def _positions(model: Transformer, encodes: bool) -> Any:
    a = model.architecture
    embedding = (model.source_embedding if encodes else None) or model.embedding
    if embedding.positions is not None:
        return _array(embedding.positions.weight)
    return _array(sinusoids(0, a.max_length, a.width, torch.device("cpu")))


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().float().contiguous().numpy()
