"""Extraction of image features: how fast can ResNet-50 run without changing what it computes?"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from search_spaces import Choice
from search_spaces.errors import TrialFailure, UsageError
from search_spaces.hardware import Hardware
from search_spaces.parameters import Parameter
from workers.context import Stopped
from workers.protocol import Metric
from workers.workloads._aside import Aside
from workers.workloads._declared import Declared
from workers.workloads._knobs import Options

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from workers.context import Context

    from .prepare import Extractor

__all__ = ["FeatureExtraction"]

_GRAPHS = ("eager", "traced", "compiled")
_CALIBRATION = 16  # images by which int8 finds its scales, whatever the batch
_REFERENCES: dict[str, Tensor] = {}  # of the last data, size and weights that were asked for


class FeatureExtraction(Declared):
    """ResNet-50 cut after its average pooling: 2,048 features of an image.

    The published setting of the comparison of deep-learning frameworks
    (https://github.com/ilkarman/DeepLearningFrameworks) is 1,000 images of 3x224x224 in batches of 32 in fp32, which
    is trial 0. `seconds_per_1000_images` counts the way of the images to the device and of the features back, and is
    the best of `fixed.passes`. `cosine` is the smallest cosine between the features of an image and those of the
    plain fp32 model: `constraints: [cosine >= 0.999]` keeps what is computed the same.

    `fixed.weights` names a file of torchvision's weights (safetensors, or a state dict); without it they are random.
    """

    name = "feature_extraction"
    summary = "features of images by ResNet-50, as fast as possible within a tolerance"
    goals = ("minimize seconds_per_1000_images",)
    metrics = (
        Metric("seconds_per_1000_images", "minimize", "speed"),
        Metric("images_per_second", "maximize", "speed"),
        Metric("cosine", "maximize"),
        Metric("mean_cosine", "maximize"),
        Metric("transfer_accuracy", "maximize"),
    )
    last_report_counts = True
    defaults: ClassVar[Mapping[str, Any]] = {
        "images": 1000,
        "size": 224,
        "passes": 3,
        "weights": "",
        "transfer": True,
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
        """See `Declared`."""
        cost = {"speed", "memory"}
        quantization = (
            [] if hardware.gpus else [Choice("quantization", ["none", "int8"], default="none")]
        )
        unquantized = {"quantization": "none"} if quantization else None
        threads = [
            0,
            *(2**i for i in range(hardware.num_cpus.bit_length())),
        ]  # 0: one for each core of the slot
        return [
            Choice("batch_size", [1, 4, 8, 16, 32, 64], ordered=True, default=32, affects=cost),
            Choice(
                "memory_format", ["contiguous", "channels_last"], default="contiguous", affects=cost
            ),
            Choice("fold_batch_norm", [False, True], default=False, affects=cost),
            Choice("graph", list(_GRAPHS), default="eager", when=unquantized, affects=cost),
            *quantization,
            *(
                [Choice("threads", threads, default=0, affects={"speed"})]
                if len(threads) > 2
                else []
            ),
        ]

    @classmethod
    def knobs(cls, hardware: Hardware) -> Options:
        """The ready-made knobs of the space."""
        return {
            "precision": {},
            "runtime": {"tune": ["matmul_precision", "cudnn_autotune"]},
        }

    @classmethod
    def reader(cls) -> Any:
        """Images are those of `image_classification`."""
        from workers.workloads.image_classification import data

        return data

    @classmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """See `Workload`."""
        super().check(data, fixed)
        if fixed.get("weights") and not Path(fixed["weights"]).expanduser().is_file():
            raise UsageError(f"fixed.weights names {fixed['weights']}, which is no file")
        for name in ("images", "passes", "size", "batch_size"):
            if fixed.get(name, 1) < 1:
                raise UsageError(f"fixed.{name} must be at least 1, got {fixed[name]!r}")

    def run(self, context: Context) -> Mapping[str, float]:
        """Time the passes over all images, reporting after each; compare the features with the plain model's."""
        import torch

        from workers.device.precision import matmul_precision

        from .images import labels

        self.read(context, lambda: labels(self.data, int(self.option("images"))))
        options = {**self.fixed, **self.params}
        threads = int(self.option("threads")) or torch.get_num_threads()
        torch.backends.cudnn.benchmark = bool(options.get("cudnn_autotune", False))
        precision = matmul_precision(str(self.option("precision")), options.get("matmul_precision"))
        try:
            with (
                precision,
                torch.inference_mode(),
                Aside(context, torch.inference_mode, daemon=False) as aside,
            ):
                aside(lambda: torch.set_num_threads(threads))
                return self._run(context, aside)
        except Stopped:
            return self._progress(context)["metrics"]  # type: ignore[no-any-return]

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """The weights under torchvision's names, and the extractor as ONNX; nothing of the trial is needed."""
        import torch
        from safetensors.torch import save_file

        from workers.export import to_onnx

        from .weights import build

        model, size = build(self.seed, str(self.option("weights"))), int(self.option("size"))
        save_file(
            {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
            target / "model.safetensors",
        )
        files = {
            "model.safetensors": "the weights of ResNet-50 without its classifier, under torchvision's names"
        }
        return {**files, **to_onnx(model, (torch.randn(2, 3, size, size),), target / "model.onnx")}

    def _run(self, context: Context, aside: Aside) -> dict[str, float]:
        import torch
        from torch.nn import functional

        device = torch.device(context.device)
        extract, context.details["prepare_seconds"] = aside(lambda: self._prepared(device))
        progress = self._progress(context)
        best, done = (
            progress["metrics"].get("seconds_per_1000_images", float("inf")),
            progress["passes"],
        )
        for number in range(done, max(int(self.option("passes")), done + 1)):
            seconds, features = self._pass(aside, extract, device)
            if number == done:
                similar = functional.cosine_similarity(features, self._reference(aside), dim=1)
            best = min(best, seconds * 1000 / len(features))
            metrics = {
                "seconds_per_1000_images": best,
                "images_per_second": 1000 / best,
                **_finite(similar),
            }
            metrics |= self._transferred(features)
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
        from .images import blocks
        from .prepare import Recipe, prepare
        from .weights import build

        begun, count, size = (
            time.perf_counter(),
            int(self.option("images")),
            int(self.option("size")),
        )
        recipe = self.options(Recipe, fold=bool(self.option("fold_batch_norm")))
        example, calibration = (
            next(self._blocks()).to(device),
            next(blocks(self.data, count, _CALIBRATION, size)),
        )
        extract = prepare(
            build(self.seed, str(self.option("weights"))).to(device), recipe, example, calibration
        )
        for _ in range(1 if recipe.graph == "eager" else 2):
            extract(example).cpu()
        return extract, time.perf_counter() - begun

    def _pass(self, aside: Aside, extract: Extractor, device: torch.device) -> tuple[float, Tensor]:
        """Seconds of one pass over all images, without preparing them, and the features on the CPU."""
        import torch

        seconds, features = 0.0, []
        for block in self._blocks():
            begun = time.perf_counter()
            features.append(aside(partial(_there_and_back, extract, block, device)))
            seconds += time.perf_counter() - begun
        return seconds, torch.cat(features)

    def _transferred(self, features: Tensor) -> dict[str, float]:
        """How well a linear classifier learns from the features, where that is asked for."""
        from .images import labels
        from .transfer import linear_accuracy

        if not self.option("transfer"):
            return {}
        return {"transfer_accuracy": linear_accuracy(features, labels(self.data, len(features)))}

    def _blocks(self) -> Iterator[Tensor]:
        from .images import blocks

        return blocks(
            self.data,
            int(self.option("images")),
            int(self.option("batch_size")),
            int(self.option("size")),
        )

    def _reference(self, aside: Aside) -> Tensor:
        """Features of the plain fp32 model, kept for the trials of this process."""
        import torch

        from workers.device.precision import matmul_precision

        from .images import blocks
        from .weights import build

        count, size, path = (
            int(self.option("images")),
            int(self.option("size")),
            str(self.option("weights")),
        )
        key = json.dumps([dict(self.data), count, size, path, self.seed], sort_keys=True)
        if key not in _REFERENCES:
            model = build(self.seed, path)
            with matmul_precision("fp32", "highest"):
                found = torch.cat(
                    [aside(partial(model, block)) for block in blocks(self.data, count, 8, size)]
                )
            _REFERENCES.clear()
            _REFERENCES[key] = found
        return _REFERENCES[key]

    def _progress(self, context: Context) -> dict[str, Any]:
        """Passes that were made before a pause, and their metrics."""
        file = context.folder / "progress.json"
        if not context.assignment.resume and context.stop is None:
            file.unlink(missing_ok=True)
        try:
            found: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError):
            return {"passes": 0, "metrics": {}}
        return found


def _finite(similar: Tensor) -> dict[str, float]:
    return {
        "cosine": float(similar.min().nan_to_num(nan=-1.0)),
        "mean_cosine": float(similar.mean().nan_to_num(nan=-1.0)),
    }


def _there_and_back(extract: Extractor, images: Tensor, device: torch.device) -> Tensor:
    """Features on the CPU of images on the CPU."""
    return extract(images.to(device, non_blocking=True)).cpu()
