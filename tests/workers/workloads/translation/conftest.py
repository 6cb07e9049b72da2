"""A small vocabulary and model on the built-in corpus."""

from __future__ import annotations

import pytest
import torch

from workers.workloads.translation.batches import Examples
from workers.workloads.translation.data import ParallelCorpus, load
from workers.workloads.translation.model import Architecture, Transformer
from workers.workloads.translation.vocabulary import Vocabulary, train


@pytest.fixture(scope="session")
def corpus() -> ParallelCorpus:
    return load({"train": 3000, "valid": 2}).train


@pytest.fixture(scope="session")
def vocabulary(corpus: ParallelCorpus) -> Vocabulary:
    return train([*corpus.sources, *corpus.targets], 600)


@pytest.fixture(scope="session")
def examples(corpus: ParallelCorpus, vocabulary: Vocabulary) -> Examples:
    return Examples.of(corpus, vocabulary, 64)


@pytest.fixture
def build():
    """Builds a model of 2 + 2 layers in eval mode; settings override the architecture's."""

    def make(seed: int = 1, *, noise: bool = True, **settings) -> Transformer:
        chosen = {"num_heads": 4, "dropout": 0.0, "feed_forward": 48, "max_length": 64, **settings}
        model = Transformer(
            Architecture(600, 32, encoder_layers=2, decoder_layers=2, **chosen), seed
        ).eval()
        with torch.no_grad():  # let biases and norms matter too
            generator = torch.Generator().manual_seed(seed)
            for parameter in model.parameters():
                if noise and parameter.ndim == 1:
                    parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
        return model

    return make
