"""The library that computes attention in torch's `scaled_dot_product_attention`."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from search_spaces.hardware import Hardware
from search_spaces.parameters import Value

from .base import COMPUTES_THE_SAME, Knob, Option

ATTENTION_BACKEND = Option(
    "attention_backend",
    "library that computes attention, if it can; auto lets torch choose",
    "auto",
    ("auto", "flash", "cudnn", "efficient", "math"),
    affects=COMPUTES_THE_SAME,
)
_NAMES: Final = {
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}
_AMPERE: Final = (8, 0)  # what flash and cuDNN need


class KernelsKnob(Knob):
    """Flash attention (Dao 2023), cuDNN, memory-efficient attention, or plain matrix products.

    https://arxiv.org/abs/2307.08691. A library may lack a kernel for a mask, a format or a width of
    heads; then torch takes the next of the others, so every value can run. A workload that computes
    attention itself (translation with `attention_kernel: math`) is not affected.
    """

    name = "kernels"
    summary = "library that computes attention"
    options = (ATTENTION_BACKEND,)

    def lacks(
        self, option: Option, hardware: Hardware, adjustments: Mapping[str, Any]
    ) -> Mapping[Value, str]:
        """See `Knob.lacks`."""
        if not hardware.gpus:
            return {name: f"{name} attention needs a CUDA GPU" for name in ("cudnn", "efficient")}
        if min(gpu.capability for gpu in hardware.gpus) < _AMPERE:
            text = "attention needs a CUDA GPU of capability 8.0 or later"
            return {name: f"{name} {text}" for name in ("flash", "cudnn")}
        return {}

    def applied(self, values: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """See `Knob.applied`."""
        chosen = ATTENTION_BACKEND.value(values)
        if chosen == "auto":
            return nullcontext()
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if chosen == "math":
            return sdpa_kernel(SDPBackend.MATH)
        others = (name for name in _NAMES if name != chosen)
        order = [getattr(SDPBackend, _NAMES[name]) for name in (chosen, *others)]
        return sdpa_kernel(order, set_priority=True)
