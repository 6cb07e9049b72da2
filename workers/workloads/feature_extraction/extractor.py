"""ResNet-50 up to its average pooling, made fast, and the time that it takes.

Parameters have the names of torchvision.
"""

from __future__ import annotations

import copy
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from search_spaces.errors import DataError, TrialFailure
from workers.context import Context, Stopped
from workers.device.precision import matmul_precision
from workers.workloads.image_classification.data import load

if TYPE_CHECKING:
    from . import FeatureExtraction

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
_CALIBRATION = 16  # images from which int8 finds its scales
_REFERENCES: dict[str, Tensor] = {}  # a cache of one: the last data and weights
_UNUSED = ("fc.weight", "fc.bias")
_LAYERS = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut; the stride is at the 3x3.

    He et al. 2016, arXiv:1512.03385.
    """

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * EXPANSION
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            shortcut = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        """(b, in, h, w) to (b, 4 width, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += shortcut
        return self.relu(x)  # type: ignore[no-any-return]


class ResNet50(nn.Module):
    """Images (b, 3, height, width) to features (b, 2048).

    Weights are Kaiming-normal from torch's random state. The last norm of each block is scaled
    down, so that features of random weights stay near one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = 64
        for index, (width, blocks, stride) in enumerate(_LAYERS, 1):
            first = Bottleneck(channels, width, stride)
            channels = width * EXPANSION
            rest = (Bottleneck(channels, width, 1) for _ in range(1, blocks))
            self.add_module(f"layer{index}", nn.Sequential(first, *rest))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, Bottleneck):
                nn.init.constant_(module.bn3.weight, 0.25)

    def forward(self, images: Tensor) -> Tensor:
        """(b, 3, height, width) to (b, 2048)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for index in range(1, len(_LAYERS) + 1):
            x = getattr(self, f"layer{index}")(x)
        return torch.flatten(self.avgpool(x), 1)


def fold_batch_norm(model: ResNet50) -> ResNet50:
    """A copy of a model in eval mode with its norms folded into the convolutions; same function."""
    folded = copy.deepcopy(model)
    _fold(folded, "conv1", "bn1")
    for block in folded.modules():
        if isinstance(block, Bottleneck):
            for i in (1, 2, 3):
                _fold(block, f"conv{i}", f"bn{i}")
            if isinstance(block.downsample, nn.Sequential):
                _fold(block.downsample, "0", "1")
    return folded


def _fold(module: nn.Module, conv: str, norm: str) -> None:
    before, after = (module.get_submodule(name) for name in (conv, norm))
    if isinstance(before, nn.Conv2d) and isinstance(after, nn.BatchNorm2d):
        module.add_module(conv, fuse_conv_bn_eval(before, after))
        module.add_module(norm, nn.Identity())


def build(seed: int, path: str = "") -> ResNet50:
    """The model in eval mode, with the weights of a file, or random weights from the seed.

    Raises:
        DataError: the file is missing, damaged, or of another model.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ResNet50()
        if not path:
            _random_statistics(model)
    if path:
        _load(model, Path(path).expanduser())
    return model.eval().requires_grad_(False)


def _random_statistics(model: ResNet50) -> None:
    """Random means and variances, so that folding the norms changes the convolutions."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0.0, 0.1)  # type: ignore[union-attr]
            module.running_var.uniform_(0.8, 1.2)  # type: ignore[union-attr]


def _load(model: ResNet50, path: Path) -> None:
    """Load tensors by name from a safetensors file, or from a state dict saved by torch."""
    try:
        if path.suffix == ".safetensors":
            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict({name: state[name] for name in state if name not in _UNUSED})
    except Exception as error:
        raise DataError(
            f"{path} cannot be read as weights of ResNet-50: "
            f"{type(error).__name__}: {str(error)[:300]}"
        ) from error


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


def measure(workload: FeatureExtraction, context: Context) -> dict[str, float]:
    """Time passes over all images, report after each, and compare with the plain model."""
    # Passes made before a pause, and their metrics.
    progress = (context.restore() if context.resumed else None) or {"passes": 0, "metrics": {}}
    if workload.option("threads"):
        torch.set_num_threads(int(workload.option("threads")))
    precision = matmul_precision(
        str(workload.option("precision")),
        {**workload.fixed, **workload.params}.get("matmul_precision"),
        context.device,
    )
    try:
        with precision, torch.inference_mode():
            _measure(workload, context, progress)
    except Stopped:
        pass
    return progress["metrics"]  # type: ignore[no-any-return]


def _measure(workload: FeatureExtraction, context: Context, progress: dict[str, Any]) -> None:
    device = torch.device(context.device)
    extract, context.details["prepare_seconds"] = _prepared(workload, device)
    best = progress["metrics"].get("seconds_per_1000_images", float("inf"))
    done = progress["passes"]
    for number in range(done, max(int(workload.option("passes")), done + 1)):
        seconds, features = _pass(workload, context, extract, int(workload.option("batch_size")))
        if number == done:
            reference = _reference(workload, context)
            similar = nn.functional.cosine_similarity(features, reference, dim=1)
        best = min(best, seconds * 1000 / len(features))
        metrics = {
            "seconds_per_1000_images": best,
            "images_per_second": 1000 / best,
            "cosine": float(similar.min().nan_to_num(nan=-1.0)),
            "mean_cosine": float(similar.mean().nan_to_num(nan=-1.0)),
        }
        progress |= {"passes": number + 1, "metrics": metrics}
        context.save(progress)
        if not torch.isfinite(features).all():
            raise TrialFailure("non_finite", "a feature is not finite")
        if not context.report(number + 1, **metrics):
            break


def _prepared(workload: FeatureExtraction, device: torch.device) -> tuple[Extractor, float]:
    """The extractor, warmed up on a batch, and the seconds that this took."""
    begun = time.perf_counter()
    options = workload.options(ExtractorOptions, fold=bool(workload.option("fold_batch_norm")))
    example = next(workload.blocks(int(workload.option("batch_size")))).to(device)
    calibration = next(workload.blocks(_CALIBRATION))
    model = build(workload.seed, str(workload.option("weights"))).to(device)
    extract = prepare(model, options, example, calibration)
    for _ in range(1 if options.graph == "eager" else 2):
        extract(example).cpu()
    return extract, time.perf_counter() - begun


def _pass(
    workload: FeatureExtraction, context: Context, extract: Extractor, batch_size: int
) -> tuple[float, Tensor]:
    """Time one pass over all images.

    Returns:
        Seconds, without loading the images; features on the CPU, (images, 2048).
    """
    seconds = 0.0
    features = []
    for block in workload.blocks(batch_size):
        context.check_stop()
        begun = time.perf_counter()
        features.append(extract(block.to(context.device, non_blocking=True)).cpu())
        seconds += time.perf_counter() - begun
    return seconds, torch.cat(features)


def _reference(workload: FeatureExtraction, context: Context) -> Tensor:
    """Features of the plain fp32 model, cached for the trials of this process."""
    options = [workload.option(name) for name in ("images", "size", "weights")]
    key = json.dumps([dict(workload.data), *options, workload.seed], sort_keys=True)
    if key not in _REFERENCES:
        model = build(workload.seed, str(workload.option("weights"))).to(context.device)
        with matmul_precision("fp32", "highest", context.device):
            _, features = _pass(workload, context, model, 8)
        _REFERENCES.clear()
        _REFERENCES[key] = features
    return _REFERENCES[key]
