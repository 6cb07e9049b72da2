"""Matrix products for inference, with packed weights and fused bias, ReLU and addition.

On CPUs fp32 products use oneDNN with packed weights: about twice as fast as torch's default, and as
exact.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from workers.device.precision import matmul_precision, medium_is_exact

_LARGE = 200  # elements per matrix; with more, oneDNN is faster
_ROWS = 64  # number of rows for which oneDNN packs the weights


class Product(Protocol):
    """Maps x (n, in) to (n, out), and adds the result to `onto` (n, out) if it is given."""

    def __call__(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """See the class."""


def product_of(linear: nn.Linear, *, relu: bool = False) -> Product:
    """The product of a linear module, with a ReLU if requested."""
    return product(linear.weight, linear.bias, relu=relu)


def product(weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Product:
    """The product with a weight (out, in) and a bias (out,); later changes have no effect."""
    device = weight.device.type
    if torch.is_autocast_enabled(device):  # convert once instead of in every product
        weight = weight.to(torch.get_autocast_dtype(device))
    if device == "cpu" and weight.dtype in (torch.float32, torch.bfloat16) and _packs():
        kind = _packed if weight.dtype == torch.float32 else _narrow
        return kind(weight, bias, "relu" if relu else "none")
    columns = weight.t().contiguous() if device == "cpu" else weight.t()

    def multiply(x: Tensor, onto: Tensor | None = None) -> Tensor:
        x = x.to(columns.dtype)
        y = torch.mm(x, columns) if bias is None else torch.addmm(bias.to(x.dtype), x, columns)
        y = y.relu_() if relu else y
        return y if onto is None else onto + y

    return multiply


def _packed(weight: Tensor, bias: Tensor | None, activation: str) -> Product:
    operations: Any = torch.ops.mkldnn
    columns = operations._reorder_linear_weight.default(weight.detach(), _ROWS)
    plain = operations._linear_pointwise.default
    added = operations._linear_pointwise.binary

    def multiply(x: Tensor, onto: Tensor | None = None) -> Tensor:
        if onto is None:
            return cast(Tensor, plain(x, columns, bias, activation, [], ""))
        return cast(Tensor, added(x, onto, columns, bias, "add"))

    return multiply


def _narrow(weight: Tensor, bias: Tensor | None, activation: str) -> Product:
    """A product with a bf16 weight: sums are in fp32, and so are the results.

    The result of a ReLU stays in bf16, because another product follows.
    """
    bias = None if bias is None else bias.to(weight.dtype)
    multiply = _packed(weight, bias, activation)

    def narrow(x: Tensor, onto: Tensor | None = None) -> Tensor:
        y = multiply(x.to(weight.dtype))
        if onto is not None:
            return onto + y
        return y.float() if activation == "none" else y

    return narrow


@lru_cache(maxsize=1)
def _packs() -> bool:
    """Whether torch was built with oneDNN and its operations on packed weights."""
    backend: Any = torch.backends.mkldnn
    return backend.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def fast_products(device: torch.device) -> AbstractContextManager[None]:
    """Use oneDNN for fp32 products on CPUs, if it is as exact as torch's default."""
    if (
        device.type != "cpu"
        or torch.get_float32_matmul_precision() == "medium"
        or not medium_is_exact()
    ):
        return nullcontext()
    return matmul_precision("fp32", "medium")


def default_products(device: torch.device, size: int) -> AbstractContextManager[None]:
    """Use torch's default for small batched fp32 products on CPUs, for which it is faster.

    Args:
        size: elements per matrix.
    """
    if device.type != "cpu" or torch.get_float32_matmul_precision() == "highest" or size > _LARGE:
        return nullcontext()
    return matmul_precision("fp32", "highest")
