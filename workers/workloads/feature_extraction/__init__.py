"""Extraction of image features: how fast can ResNet-50 run without changing its output?"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from search_spaces import Choice, Parameter, UsageError
from search_spaces.errors import TrialFailure
from search_spaces.hardware import Hardware
from workers.context import Context, Stopped
from workers.protocol import Metric
from workers.workloads._declarative_workload import DeclarativeWorkload, Options

if TYPE_CHECKING:
    import torch

    from .extractor import Extractor

__all__ = ["FeatureExtraction"]

_GRAPHS = ("eager", "traced", "compiled")
_CALIBRATION = 16  # images from which int8 finds its scales
_REFERENCES: dict[str, torch.Tensor] = {}  # a cache of one: the last data and weights


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
        """Time passes over all images, report after each, and compare with the plain model."""
        import torch

        from workers.device.precision import matmul_precision

        self.read(context)
        options = {**self.fixed, **self.params}
        if self.option("threads"):
            torch.set_num_threads(int(self.option("threads")))
        precision = matmul_precision(
            str(self.option("precision")), options.get("matmul_precision"), context.device
        )
        try:
            with precision, torch.inference_mode():
                return self._run(context)
        except Stopped:
            return self._progress(context)["metrics"]  # type: ignore[no-any-return]

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """Write the weights under torchvision's names, and the model as ONNX.

        Needs nothing from the trial.
        """
        import torch
        from safetensors.torch import save_file

        from workers.export import to_onnx

        from .resnet import build

        model = build(self.seed, str(self.option("weights")))
        tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_file(tensors, target / "model.safetensors")
        images = torch.randn(2, 3, int(self.option("size")), int(self.option("size")))
        return {
            "model.safetensors": "the weights of ResNet-50 without its classifier, "
            "under torchvision's names",
            **to_onnx(model, (images,), target / "model.onnx"),
        }

    def _run(self, context: Context) -> dict[str, float]:
        import torch

        device = torch.device(context.device)
        extract, context.details["prepare_seconds"] = self._prepared(device)
        progress = self._progress(context)
        best = progress["metrics"].get("seconds_per_1000_images", float("inf"))
        done = progress["passes"]
        for number in range(done, max(int(self.option("passes")), done + 1)):
            seconds, features = self._pass(context, extract, device)
            if number == done:
                reference = self._reference(context, device)
                similar = torch.nn.functional.cosine_similarity(features, reference, dim=1)
            best = min(best, seconds * 1000 / len(features))
            metrics = {
                "seconds_per_1000_images": best,
                "images_per_second": 1000 / best,
                "cosine": float(similar.min().nan_to_num(nan=-1.0)),
                "mean_cosine": float(similar.mean().nan_to_num(nan=-1.0)),
            }
            (context.folder / "progress.json").write_text(
                json.dumps({"passes": number + 1, "metrics": metrics})
            )
            if not torch.isfinite(features).all():
                raise TrialFailure("non_finite", "a feature is not finite")
            if not context.report(number + 1, **metrics):
                break
        return metrics

    def _prepared(self, device: torch.device) -> tuple[Extractor, float]:
        """The extractor, warmed up on a batch, and the seconds that this took."""
        from .extractor import ExtractorOptions, prepare
        from .resnet import build

        begun = time.perf_counter()
        options = self.options(ExtractorOptions, fold=bool(self.option("fold_batch_norm")))
        example = next(self._blocks(int(self.option("batch_size")))).to(device)
        calibration = next(self._blocks(_CALIBRATION))
        model = build(self.seed, str(self.option("weights"))).to(device)
        extract = prepare(model, options, example, calibration)
        for _ in range(1 if options.graph == "eager" else 2):
            extract(example).cpu()
        return extract, time.perf_counter() - begun

    def _pass(
        self, context: Context, extract: Extractor, device: torch.device
    ) -> tuple[float, torch.Tensor]:
        """Time one pass over all images.

        Returns:
            Seconds, without loading the images; features on the CPU, (images, 2048).
        """
        import torch

        seconds = 0.0
        features = []
        for block in self._blocks(int(self.option("batch_size"))):
            context.check_stop()
            begun = time.perf_counter()
            features.append(_there_and_back(extract, block, device))
            seconds += time.perf_counter() - begun
        return seconds, torch.cat(features)

    def _blocks(self, batch_size: int) -> Iterator[torch.Tensor]:
        from .extractor import blocks

        return blocks(self.data, int(self.option("images")), batch_size, int(self.option("size")))

    def _reference(self, context: Context, device: torch.device) -> torch.Tensor:
        """Features of the plain fp32 model on the CPU, cached for the trials of this process."""
        import torch

        from workers.device.precision import matmul_precision

        from .resnet import build

        options = [self.option(name) for name in ("images", "size", "weights")]
        key = json.dumps([dict(self.data), *options, self.seed], sort_keys=True)
        if key not in _REFERENCES:
            model = build(self.seed, str(self.option("weights"))).to(device)
            with matmul_precision("fp32", "highest", device):
                parts = []
                for block in self._blocks(8):
                    context.check_stop()
                    parts.append(_there_and_back(model, block, device))
            _REFERENCES.clear()
            _REFERENCES[key] = torch.cat(parts)
        return _REFERENCES[key]

    def _progress(self, context: Context) -> dict[str, Any]:
        """Passes made before a pause, and their metrics."""
        file = context.folder / "progress.json"
        if not context.assignment.resume and context.stop is None:
            file.unlink(missing_ok=True)
        try:
            return json.loads(file.read_text())  # type: ignore[no-any-return]
        except (OSError, ValueError):
            return {"passes": 0, "metrics": {}}


def _there_and_back(extract: Extractor, images: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Features on the CPU for images on the CPU."""
    return extract(images.to(device, non_blocking=True)).cpu()
