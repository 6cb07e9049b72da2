"""Matrix products of inference: weights laid out for them once, what comes before and after joined to them.

On CPUs fp32 products are oneDNN's, of weights that it has packed: some twice as fast as torch's default, and as exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from workers.device.precision import matmul_precision

_EXACT = 1e-5
_LARGE = 200  # elements of a batch's matrix from which oneDNN is faster
_ROWS = 64  # for so many rows oneDNN chooses how weights are packed


class Product(Protocol):
    """Maps x (n, in) to (n, out), and adds that to `onto` (n, out) where it is given."""

    def __call__(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """See the class."""


def product_of(linear: nn.Module, *, relu: bool = False) -> Product:
    """A linear map, under a ReLU where it is asked for; what is no `nn.Linear` (a quantised one) computes by itself."""
    if isinstance(linear, nn.Linear):
        return product(linear.weight, linear.bias, relu=relu)
    return then_added(lambda x: linear(x).relu_() if relu else linear(x))


def product(weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Product:
    """By a weight (out, in) and a bias (out,); later changes of the weight are not seen."""
    device = weight.device.type
    if torch.is_autocast_enabled(device):  # else each product would convert it anew
        weight = weight.to(torch.get_autocast_dtype(device))
    if device == "cpu" and weight.dtype in (torch.float32, torch.bfloat16) and _packs():
        return (_packed if weight.dtype == torch.float32 else _narrow)(
            weight, bias, "relu" if relu else "none"
        )
    columns = weight.t().contiguous() if device == "cpu" else weight.t()

    def multiply(x: Tensor) -> Tensor:
        x = x.to(columns.dtype)
        y = torch.mm(x, columns) if bias is None else torch.addmm(bias.to(x.dtype), x, columns)
        return y.relu_() if relu else y

    return then_added(multiply)


def _packed(weight: Tensor, bias: Tensor | None, activation: str) -> Product:
    operations: Any = torch.ops.mkldnn
    columns = operations._reorder_linear_weight.default(weight.detach(), _ROWS)
    plain, added = operations._linear_pointwise.default, operations._linear_pointwise.binary

    def multiply(x: Tensor, onto: Tensor | None = None) -> Tensor:
        found: Tensor
        found = (
            plain(x, columns, bias, activation, [], "")
            if onto is None
            else added(x, onto, columns, bias, "add")
        )
        return found

    return multiply


def _narrow(weight: Tensor, bias: Tensor | None, activation: str) -> Product:
    """Of a weight in bf16: sums are in fp32, and so are the results, but for those of a ReLU, which another takes."""
    bias = None if bias is None else bias.to(weight.dtype)
    multiply = _packed(weight, bias, activation)

    def narrow(x: Tensor, onto: Tensor | None = None) -> Tensor:
        y = multiply(x.to(weight.dtype))
        if onto is not None:
            return onto + y
        return y.float() if activation == "none" else y

    return narrow


def then_added(multiply: Callable[[Tensor], Tensor]) -> Product:
    """A product of what cannot add by itself."""
    return lambda x, onto=None: multiply(x) if onto is None else onto + multiply(x)


@lru_cache(maxsize=1)
def _packs() -> bool:
    """Whether torch was built with oneDNN and its operations on packed weights."""
    backend: Any = torch.backends.mkldnn
    return backend.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Compute fp32 products by oneDNN on CPUs where it is as exact as torch's default."""
    if device.type != "cpu" or torch.get_float32_matmul_precision() == "medium" or not _exact():
        yield
        return
    with matmul_precision("fp32", "medium"):
        yield


@contextmanager
def default_products(device: torch.device, size: int) -> Iterator[None]:
    """Compute batched fp32 products of `size` elements each on CPUs by torch's default where that is faster."""
    if device.type != "cpu" or torch.get_float32_matmul_precision() == "highest" or size > _LARGE:
        yield
        return
    with matmul_precision("fp32", "highest"):
        yield


@lru_cache(maxsize=1)
def _exact() -> bool:
    """Whether "medium" is more than a rounding to bf16 on this machine."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, 256, generator=generator) for _ in range(2))
    expected = a.double() @ b.double().t()
    with matmul_precision("fp32", "medium"):
        return bool((a @ b.t() - expected).abs().max() < _EXACT * expected.abs().max())
