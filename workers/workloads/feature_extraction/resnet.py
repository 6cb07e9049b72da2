"""ResNet-50 up to its average pooling, with the parameter names of torchvision."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

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
