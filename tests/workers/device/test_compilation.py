"""What `torch.compile` does for the option `compile`."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from workers.device.precision import compile_module


@pytest.mark.parametrize("own_class", [True, False])
def test_compiled_code_has_the_gradients_of_a_convolution_before_max_pooling(
    own_class: bool,
) -> None:
    class Wrapped(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)  # type: ignore[no-any-return]

    torch.manual_seed(0)
    convolution = (nn.ReLU(), nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2))
    layers = nn.Sequential(*convolution, nn.Flatten(), nn.Linear(512, 64), nn.Linear(64, 10))
    plain = Wrapped(layers) if own_class else layers
    compiled = copy.deepcopy(plain)
    counters.clear()
    compile_module(compiled, "default")
    images = torch.randn(16, 1, 12, 12)
    for model in (plain, compiled):
        model(images).square().sum().backward()
    assert counters["stats"]["unique_graphs"] == 1
    for ours, theirs in zip(compiled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)
