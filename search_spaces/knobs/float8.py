"""Matrix products of large linear layers in 8 bits."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from search_spaces.errors import UsageError
from search_spaces.hardware import Hardware
from search_spaces.parameters import Value

from .base import Knob, Option

FLOAT8 = Option(
    "float8",
    "matrix products of large linear layers in 8 bits, each row with a scale of its own",
    "off",
    ("off", "rowwise"),
    requires={"precision": ("bf16",)},
)
MIN_FEATURES: Final = 1024  # of input and output; smaller products are slower than in bf16
_MULTIPLE: Final = 16  # of features, which the kernels need
_HOPPER: Final = (9, 0)  # whose kernels scale by rows
_GPU: Final = "needs an NVIDIA GPU of capability 9.0 or later"
_PACKAGE: Final = "needs the package torchao: pip install 'automl-sweep[float8]'"


class Float8Knob(Knob):
    """torchao's float8 training with a scale for each row (https://arxiv.org/abs/2209.05433).

    Weights, moments and all other operations stay as they are under bf16. Layers with fewer than
    1024 inputs or outputs are left as they are; a model without larger ones trains in bf16.
    """

    name = "float8"
    summary = "matrix products in 8 bits"
    options = (FLOAT8,)
    on_request = (FLOAT8,)
    constraints = ("float8 == 'off' or parallelism in ('single', 'ddp', 'fsdp', 'hsdp')",)

    def lacks(
        self, option: Option, hardware: Hardware, adjustments: Mapping[str, Any]
    ) -> Mapping[Value, str]:
        """See `Knob.lacks`."""
        # AMD's GPUs have no tf32.
        fast = all(gpu.capability >= _HOPPER for gpu in hardware.gpus)
        if not (hardware.gpus and fast and "tf32" in hardware.precisions):
            return {"rowwise": _GPU}
        if not hardware.assumed and find_spec("torchao") is None:
            return {"rowwise": _PACKAGE}
        return {}

    def change(self, model: Any, values: Mapping[str, Any]) -> None:
        """See `Knob.change`.

        Raises:
            UsageError: torchao is not installed, or this process has no such GPU.
        """
        if FLOAT8.value(values) == "off":
            return
        import torch

        if find_spec("torchao") is None:
            raise UsageError(f"float8 {_PACKAGE}")
        if not torch.cuda.is_available() or torch.cuda.get_device_capability() < _HOPPER:
            raise UsageError(f"float8 {_GPU}")
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = Float8LinearConfig.from_recipe_name("rowwise")
        # The rows of a batch are the inner dimension of a weight's gradient.
        object.__setattr__(config, "pad_inner_dim", True)
        convert_to_float8_training(model, config=config, module_filter_fn=_is_large)


def _is_large(module: Any, name: str) -> bool:
    """Whether a linear layer is large enough, and has sizes that the kernels take."""
    sizes = (module.in_features, module.out_features)
    return min(sizes) >= MIN_FEATURES and not any(size % _MULTIPLE for size in sizes)
