"""Number formats, and what `torch.compile` does for the option `compile`."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from search_spaces.errors import UsageError
from workers.device.precision import Precision, compile_module, matmul_precision


def test_tf32_needs_a_gpu():
    with pytest.raises(UsageError, match=r"8\.0"):
        Precision("tf32", torch.device("cpu"))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precisions_train_like_fp32_on_fp32_weights(runner, precision):
    runner(max_updates=15, evaluate_updates=1)
    exact = runner.losses()
    outcome = runner(max_updates=15, evaluate_updates=1, precision=precision)
    assert outcome.failure is None, outcome.message
    assert runner.losses() == pytest.approx(exact, rel=2e-2)
    assert runner.losses() != exact
    from workers.training import checkpoint

    found = checkpoint.load(runner.folder)
    assert {t.dtype for t in found.model.values()} == {torch.float32}
    assert (found.progress["scaler"] is not None) == (precision == "fp16")


@pytest.mark.parametrize(
    ("precision", "option", "device", "found"),
    [
        ("fp32", "medium", "cpu", "medium"),
        ("fp32", "medium", "cuda:0", "highest"),
        ("fp32", "high", "cuda", "highest"),
        ("tf32", "highest", "cuda", "high"),
        ("fp32", None, "cpu", "highest"),
    ],
)
def test_on_a_gpu_the_precision_alone_says_whether_products_are_tf32(
    precision, option, device, found
):
    before = torch.get_float32_matmul_precision()
    with matmul_precision(precision, option, device):
        assert torch.get_float32_matmul_precision() == found
        assert torch.backends.cudnn.allow_tf32 is (found != "highest")
    assert torch.get_float32_matmul_precision() == before


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
