"""Features of images: their batches, and a model made fast."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from search_spaces.errors import DataError
from workers.workloads.image_classification.data import load

from .resnet import ResNet50, fold_batch_norm

Extractor = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ExtractorOptions:
    """How features are computed.

    Args:
        precision: of weights and activations: "fp32", "tf32", "bf16" or "fp16".
        memory_format: "contiguous" or "channels_last".
        fold: whether batch norms are folded into the convolutions before them.
        graph: "eager", "traced" (frozen and fused) or "compiled".
        quantization: "none", or "int8" (static, calibrated on some images; CPU only, for any
            precision).
    """

    precision: str = "fp32"
    memory_format: str = "contiguous"
    fold: bool = False
    graph: str = "eager"
    quantization: str = "none"

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and activations."""
        return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision, torch.float32)

    @property
    def layout(self) -> torch.memory_format:
        """Of weights and images."""
        last = self.memory_format == "channels_last"
        return torch.channels_last if last else torch.contiguous_format


def prepare(
    model: ResNet50, recipe: ExtractorOptions, example: Tensor, calibration: Tensor
) -> Extractor:
    """A function from float images on the model's device to fp32 features.

    Args:
        model: in eval mode; it may be changed.
        example: images (b, 3, h, w) for tracing and compiling.
        calibration: images from which int8 takes its scales.
    """
    module: nn.Module = fold_batch_norm(model) if recipe.fold else model
    if recipe.quantization == "int8":
        quantized = _quantize(module, calibration)
        return lambda images: quantized(images).float()
    module = module.to(dtype=recipe.dtype, memory_format=recipe.layout)  # type: ignore[call-overload]

    def arranged(images: Tensor) -> Tensor:
        return images.to(dtype=recipe.dtype, memory_format=recipe.layout)

    called = _graph(module, recipe, arranged(example))
    return lambda images: called(arranged(images)).float()


def _graph(module: nn.Module, recipe: ExtractorOptions, example: Tensor) -> Any:
    if recipe.graph == "compiled":
        return torch.compile(module)
    if recipe.graph == "traced":
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(module, example, check_trace=False)  # type: ignore[no-untyped-call]
            fuse = example.device.type == "cpu" and recipe.dtype is torch.float32
            return torch.jit.optimize_for_inference(traced) if fuse else torch.jit.freeze(traced)
    return module


def _quantize(module: nn.Module, example: Tensor) -> nn.Module:
    """Static int8 with scales from the example (Jacob et al. 2018, arXiv:1712.05877)."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        from torch.ao.quantization import get_default_qconfig_mapping
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

        observed = prepare_fx(module, get_default_qconfig_mapping("x86"), (example,))
        observed(example)
        return convert_fx(observed)


MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def subset(data: Mapping[str, Any], count: int) -> Any:
    """The data set, with at least `count` images; cached for the trials of this process."""
    if data.get("name", "builtin") == "builtin":
        data = {"train": count, "test": 1, **data}
    images = load(data).train
    if len(images.labels) < count:
        raise DataError(f"fixed.images is {count}, the data set has {len(images.labels)} images")
    return images


def blocks(data: Mapping[str, Any], count: int, batch_size: int, size: int) -> Iterator[Tensor]:
    """The first `count` images in batches (b, 3, size, size) of float32."""
    pixels = subset(data, count).pixels
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    for begin in range(0, count, batch_size):
        part = torch.from_numpy(pixels[begin : min(begin + batch_size, count)].copy()).float() / 255
        if part.shape[-1] != size:
            part = nn.functional.interpolate(
                part, size=(size, size), mode="bilinear", align_corners=False
            )
        yield (part - mean) / std
