"""ResNet-50 up to its average pooling, with the parameter names of torchvision."""

import copy
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from search_spaces.errors import DataError

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


_UNUSED = ("fc.weight", "fc.bias")


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
    state = {name: tensor for name, tensor in read(path).items() if name not in _UNUSED}
    needed = {
        name: t.shape
        for name, t in model.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    for name, shape in needed.items():
        if name not in state:
            raise DataError(f"{path} is not of ResNet-50: it has no {name}")
        if state[name].shape != shape:
            raise DataError(
                f"{path}: {name} has the shape {tuple(state[name].shape)}, "
                f"ResNet-50 needs {tuple(shape)}"
            )
    unknown = sorted(set(state) - set(model.state_dict()))
    if unknown:
        raise DataError(f"{path} is not of ResNet-50: it has {unknown[0]}")
    model.load_state_dict(state, strict=False)


def read(path: Path) -> dict[str, Tensor]:
    """Tensors by name from a safetensors file, or from a state dict saved by torch.

    Raises:
        DataError: the file is missing, damaged, or holds more than tensors.
    """
    if not path.is_file():
        raise DataError(f"there are no weights at {path}")
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, Exception) as error:
        raise DataError(
            f"{path} cannot be read as weights: {type(error).__name__}: {str(error)[:200]}"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(f"{path} does not hold a state dict of tensors")
    return state
