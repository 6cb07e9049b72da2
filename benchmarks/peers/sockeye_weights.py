"""Writes our weights in Sockeye's format, so that both decode the same model.

The target is the folder of a Sockeye model of the same size. Its words and its configuration stay;
its parameters are replaced.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from workers.workloads.translation import attention_layouts
from workers.workloads.translation.model import sinusoids
from workers.workloads.translation.translator import VOCABULARY
from workers.workloads.translation.vocabulary import Vocabulary

_NEVER = -1e9  # logit of a word that is missing in our vocabulary


def write(export: Path, sockeye: Path) -> None:
    """Write the model exported to one folder as `params.best` of the other.

    Raises:
        ValueError: our attention has biases, which Sockeye's does not have.
    """
    ours = load_file(export / "model.safetensors")
    theirs = torch.load(sockeye / "params.best", weights_only=True)
    if any(
        bool(t.any()) for name, t in ours.items() if "attention." in name and name.endswith("bias")
    ):
        raise ValueError("attention has biases; train with no_bias")
    heads = json.loads((export / "architecture.json").read_text())["num_heads"]
    found = dict(theirs)
    _embeddings(found, ours, Vocabulary((export / VOCABULARY).read_bytes()), sockeye)
    for name in theirs:
        side, _, rest = name.partition(".")
        if side in ("encoder", "decoder"):
            found[name] = _layer(ours, side, rest, theirs[name], heads)
    torch.save(found, sockeye / "params.best")


def _embeddings(
    found: dict[str, Tensor], ours: dict[str, Tensor], vocabulary: Vocabulary, sockeye: Path
) -> None:
    words = json.loads((sockeye / "vocab.src.0.json").read_text())
    rows = found["output_layer.bias"].shape[0]
    matrix = ours["embedding.tokens.weight"]
    known = {vocabulary.piece(i).removeprefix("\u2581"): i for i in range(4, len(vocabulary))}
    known |= {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3}
    table = torch.zeros(rows, matrix.shape[1])
    bias = torch.full((rows,), _NEVER)
    for word, row in words.items():
        if word in known:
            table[row] = matrix[known[word]]
            bias[row] = 0.0
        else:
            table[row] = matrix[1]  # read as an unknown word
    for special in ("<unk>", "<pad>", "<s>"):
        bias[words[special]] = _NEVER
    for name in (
        "embedding_source.embedding.weight",
        "embedding_target.embedding.weight",
        "output_layer.weight",
    ):
        found[name] = table
    found["output_layer.bias"] = bias


def _layer(ours: dict[str, Tensor], side: str, rest: str, like: Tensor, heads: int) -> Tensor:
    """The tensor that has the name `side`.`rest` in Sockeye."""
    if rest == "pos_embedding.weight":
        return sinusoids(like.shape[0], like.shape[1], like.device)
    if rest.startswith("final_process"):
        return ours[f"{side}.norm.{rest.rpartition('.')[2]}"]
    _, number, block, *_ = rest.split(".")
    prefix = f"{side}.layers.{number}."
    kind = rest.rpartition(".")[2]
    own = "attention" if side == "encoder" else "self_attention"
    norms = {
        "pre_self_attention": "attention_norm", "pre_autoregr_layer": "self_norm",
        "pre_enc_attention": "cross_norm", "pre_ff": "feed_forward_norm",
    }  # fmt: skip
    if block in norms:
        return ours[f"{prefix}{norms[block]}.{kind}"]
    if block == "ff":
        part = "inner" if ".ff1." in rest else "outer"
        return ours[f"{prefix}feed_forward.{part}.{kind}"]
    name = prefix + ("cross_attention" if block == "enc_attention" else own)
    parts = {part: ours[f"{name}.{part}.weight"] for part in ("query", "key", "value", "output")}
    key_value = attention_layouts.join(parts, "key_value", "interleaved", like.shape[1] // heads)
    forms = {"ff_out": parts["output"], "ff_q": parts["query"], "ff_kv": key_value}
    forms["ff_in"] = torch.cat([parts["query"], key_value])
    tensor = forms[rest.split(".")[-2]]
    if tensor.shape != like.shape or not math.isfinite(float(tensor.sum())):
        raise ValueError(f"{side}.{rest}: {tuple(like.shape)} expected, got {tuple(tensor.shape)}")
    return tensor
