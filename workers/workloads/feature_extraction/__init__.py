"""Extraction of image features: how fast can ResNet-50 run without changing its output?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from search_spaces import Choice, Parameter, UsageError
from search_spaces.hardware import Hardware
from workers.context import Context
from workers.protocol import Metric
from workers.workloads._declarative_workload import DeclarativeWorkload, Options

if TYPE_CHECKING:
    import torch

__all__ = ["FeatureExtraction"]

_GRAPHS = ("eager", "traced", "compiled")


class FeatureExtraction(DeclarativeWorkload):
    """ResNet-50 without its classifier: 2,048 features per image.

    Trial 0 is the published setting of the comparison of deep-learning frameworks
    (https://github.com/ilkarman/DeepLearningFrameworks): 1,000 images of 3x224x224 in batches of 32
    in fp32. `seconds_per_1000_images` includes the transfers to and from the device, and is the
    best of `fixed.passes`. `cosine` is the smallest cosine similarity between the features of an
    image and those of the plain fp32 model: `constraints: [cosine >= 0.999]` bounds the error.

    `fixed.weights` names a file of torchvision's weights (safetensors, or a state dict); by default
    they are random.
    """

    name = "feature_extraction"
    summary = "features of images by ResNet-50, as fast as possible within a tolerance"
    goals = ("minimize seconds_per_1000_images",)
    metrics = (
        Metric("seconds_per_1000_images", "minimize", "speed"),
        Metric("images_per_second", "maximize", "speed"),
        Metric("cosine", "maximize"),
        Metric("mean_cosine", "maximize"),
    )
    last_report_counts = True
    defaults: ClassVar[Mapping[str, Any]] = {
        "images": 1000,
        "size": 224,
        "passes": 3,
        "weights": "",
        "batch_size": 32,
        "precision": "fp32",
        "memory_format": "contiguous",
        "fold_batch_norm": False,
        "graph": "eager",
        "quantization": "none",
        "threads": 0,
    }
    smallest: ClassVar[Mapping[str, Any]] = {
        "data": {},
        "fixed": {"images": 10, "size": 32, "passes": 2},
    }

    @classmethod
    def own(cls, hardware: Hardware) -> Sequence[Parameter]:
        """See `DeclarativeWorkload`."""
        cost = {"speed", "memory"}
        quantization = (
            [] if hardware.gpus else [Choice("quantization", ["none", "int8"], default="none")]
        )
        unquantized = {"quantization": "none"} if quantization else None
        # 0 means one thread per core of the slot.
        counts = [0, *(2**i for i in range(hardware.num_cpus.bit_length()))]
        threads = Choice("threads", counts, default=0, affects={"speed"})
        return [
            Choice("batch_size", [1, 4, 8, 16, 32, 64], ordered=True, default=32, affects=cost),
            Choice(
                "memory_format", ["contiguous", "channels_last"], default="contiguous", affects=cost
            ),
            Choice("fold_batch_norm", [False, True], default=False, affects=cost),
            Choice("graph", list(_GRAPHS), default="eager", when=unquantized, affects=cost),
            *quantization,
            *([threads] if len(counts) > 2 else []),
        ]

    @classmethod
    def knobs(cls, hardware: Hardware) -> Options:
        """See `DeclarativeWorkload`."""
        return {
            "precision": {},
            "runtime": {"tune": ["matmul_precision"]},
        }

    @classmethod
    def reader(cls) -> Any:
        """The images are those of `image_classification`."""
        from workers.workloads.image_classification import data

        return data

    @classmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """See `Workload`."""
        super().check(data, fixed)
        if fixed.get("weights") and not Path(fixed["weights"]).expanduser().is_file():
            raise UsageError(f"fixed.weights is not a file, got {fixed['weights']!r}")
        for name in ("images", "passes", "size", "batch_size"):
            if fixed.get(name, 1) < 1:
                raise UsageError(f"fixed.{name} must be at least 1, got {fixed[name]!r}")

    def load_data(self) -> None:
        """See `Workload`."""
        from .extractor import subset

        subset(self.data, int(self.option("images")))

    def run(self, context: Context) -> Mapping[str, float]:
        """See `extractor.measure`."""
        from .extractor import measure

        self.read(context)
        return measure(self, context)

    def blocks(self, batch_size: int) -> Iterator[torch.Tensor]:
        """The images in batches, see `extractor.blocks`."""
        from .extractor import blocks

        return blocks(self.data, int(self.option("images")), batch_size, int(self.option("size")))

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """Write the weights under torchvision's names, and the model as ONNX.

        Needs nothing from the trial.
        """
        import torch
        from safetensors.torch import save_file

        from workers.export import to_onnx

        from .extractor import build

        model = build(self.seed, str(self.option("weights")))
        tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_file(tensors, target / "model.safetensors")
        images = torch.randn(2, 3, int(self.option("size")), int(self.option("size")))
        return {
            "model.safetensors": "the weights of ResNet-50 without its classifier, "
            "under torchvision's names",
            **to_onnx(model, (images,), target / "model.onnx"),
        }
