"""The VGG-style network of the comparison of deep-learning frameworks.

https://github.com/ilkarman/DeepLearningFrameworks
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from workers.parallel.mesh import balanced


@dataclass(frozen=True)
class ImageModelOptions:
    """Options of the network; the defaults are the published setting.

    `batch_norm` normalises after every convolution (Ioffe and Szegedy 2015), and the dense layer by
    layer norm.
    """

    num_classes: int = 10
    size: int = 32
    filters: int = 50
    dense_units: int = 512
    dropout: float = 0.25
    dense_dropout: float = 0.5
    batch_norm: bool = False


class Block(nn.Module):
    """Two 3x3 convolutions, max-pooling by 2, dropout: (b, in, h, w) to (b, out, h / 2, w / 2)."""

    def __init__(self, in_channels: int, out_channels: int, options: ImageModelOptions) -> None:
        super().__init__()
        norm = options.batch_norm
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=not norm)
        self.norm1 = nn.BatchNorm2d(out_channels) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=not norm)
        self.norm2 = nn.BatchNorm2d(out_channels) if norm else nn.Identity()
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(b, in, h, w) to (b, out, h / 2, w / 2).

        The second ReLU follows the pooling: the same function, on a quarter of the values.
        """
        x = self.norm1(self.conv1(x)).relu()
        x = self.pool(self.norm2(self.conv2(x))).relu()
        return self.dropout(x)  # type: ignore[no-any-return]


class ClassifierHead(nn.Module):
    """A dense layer and the class scores: (b, channels, h, w) to (b, num_classes)."""

    def __init__(self, in_features: int, options: ImageModelOptions) -> None:
        super().__init__()
        norm = options.batch_norm  # else sums of many normalised inputs diverge
        self.dense = nn.Linear(in_features, options.dense_units, bias=not norm)
        self.norm = nn.LayerNorm(options.dense_units) if norm else nn.Identity()
        self.dropout = nn.Dropout(options.dense_dropout)
        self.output = nn.Linear(options.dense_units, options.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """(b, channels, h, w) to logits (b, num_classes)."""
        return self.output(self.dropout(self.norm(self.dense(x.flatten(1))).relu()))  # type: ignore[no-any-return]


class ImageModel(nn.Module):
    """Two blocks, with twice the filters in the second, and a head."""

    def __init__(self, options: ImageModelOptions) -> None:
        super().__init__()

        self.block1 = Block(3, options.filters, options)
        self.block2 = Block(options.filters, 2 * options.filters, options)
        self.head = ClassifierHead(2 * options.filters * (options.size // 4) ** 2, options)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Images (b, 3, size, size) to logits (b, num_classes)."""
        return self.head(self.block2(self.block1(images)))  # type: ignore[no-any-return]


class ImageStage(nn.Module):
    """Consecutive parts of the model."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, *hidden: Tensor, images: Tensor) -> Tensor:
        """Map the output of the stage before, or the images of the batch, to the next input."""
        x = hidden[0] if hidden else scaled(images)
        for part in self.parts:
            x = part(x)
        return x


def scaled(images: Tensor) -> Tensor:
    """Pixels of 0 to 255 as numbers from -1 to 1."""
    return images.to(torch.get_default_dtype()).mul_(2 / 255).sub_(1)


def stages(model: ImageModel, num_stages: int) -> list[nn.Module]:
    """The model divided into one to three stages: its blocks and its head.

    Raises:
        UsageError: `num_stages` is not 1 to 3.
    """
    parts: list[nn.Module] = [model.block1, model.block2, model.head]
    cut = balanced([2.0, 2.0, 1.0], num_stages)
    return [ImageStage(*parts[stage.start : stage.stop]) for stage in cut]
