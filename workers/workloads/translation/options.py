"""Options of the translation workload: what there is, the defaults, and what may be tuned."""

from collections.abc import Mapping
from typing import Any, Final

from search_spaces.errors import UsageError
from search_spaces.knobs.table import (
    ATTENTION_LAYOUT,
    DROPOUT,
    LABEL_SMOOTHING,
    LEARNING_RATE,
    NUM_HEADS,
)

KNOBS: Final[dict[str, dict[str, Any]]] = {
    "optimizer": {
        "optimizer": False,
        "learning_rate": {"low": 1e-4, "high": 2e-2},
        "warmup_updates": {"low": 10, "high": 1000},
        "weight_decay": False,
    },
    "batch": {"unit": "tokens", "batch_tokens": [512, 1024, 2048, 4096]},
    "architecture": {
        "width": [64, 96, 128, 192, 256, 384, 512],
        "dropout": {"low": 0.0, "high": 0.4},
    },
    "precision": {},
    "attention": {},
    "parallelism": {"plan": ("layers", "tensor", "num_heads", "stages")},
    "runtime": {
        "tune": ["matmul_precision", "activation_checkpointing", "compile"],
        "matmul_precision": {"when": {"precision": "fp32"}},
    },
}
"""The knobs of the workload and how they differ from what the knobs declare themselves."""

ON_REQUEST: Final = ("attention_backend", "checkpoint_every", "compile_scope", "chunked_loss")
"""Options of knobs that are tuned only if a configuration names them."""

DEFAULTS: Final[Mapping[str, Any]] = {
    # data
    "vocabulary_size": 2000,
    "vocabulary_kind": "bpe",
    "max_length": 128,
    "tokenizer": "auto",  # of BLEU, by the script of the references
    # model
    "num_layers": 2,
    "num_decoder_layers": None,  # as num_layers
    "width": 128,
    "num_heads": NUM_HEADS.default,
    "feed_forward_ratio": 4,
    "dropout": DROPOUT.default,
    "attention_layout": ATTENTION_LAYOUT.default,
    "attention_kernel": "auto",
    "tied_embeddings": True,
    # training; workers.training has further options
    "label_smoothing": LABEL_SMOOTHING.default,
    "batch_tokens": 1024,
    "learning_rate": LEARNING_RATE.default,
    "warmup_updates": 100,
    "optimizer": "adam",
    "max_epochs": 30,
    "evaluate_seconds": 8.0,
    # evaluation
    "eval_sentences": 400,
    "beam": 1,
    "length_penalty": 1.0,
}

_WORDS = {
    "vocabulary_kind": ("bpe", "unigram", "word"),
    "tokenizer": ("auto", "13a", "zh", "ja-mecab", "char"),
    "attention_kernel": ("auto", "sdpa", "math", "fused"),
    "attention_layout": ATTENTION_LAYOUT.choices,
    "tied_embeddings": (True, False),
}
_COUNTS = (
    *("vocabulary_size", "max_length", "num_layers", "num_decoder_layers", "width", "num_heads"),
    *("feed_forward_ratio", "batch_tokens", "warmup_updates", "eval_sentences", "beam"),
)
_SHARES = ("dropout", "label_smoothing")


def check(given: Mapping[str, Any]) -> None:
    """Raise UsageError where an option has no such value."""
    for name, value in given.items():
        if name in _WORDS and value not in _WORDS[name]:
            raise UsageError(f"{name} is one of {', '.join(map(str, _WORDS[name]))}, got {value!r}")
        if (
            name in _COUNTS
            and value is not None
            and (isinstance(value, bool) or not isinstance(value, int) or value < 1)
        ):
            raise UsageError(f"{name} must be a whole number of at least 1, got {value!r}")
        if name in _SHARES and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1
        ):
            raise UsageError(f"{name} must be at least 0 and below 1, got {value!r}")
    width, heads = (given.get(name, DEFAULTS[name]) for name in ("width", "num_heads"))
    if width % heads or width % 2:
        raise UsageError(
            "width must be even and a multiple of num_heads, "
            f"got width {width} and num_heads {heads}"
        )
