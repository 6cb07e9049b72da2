"""Images for feature extraction in batches, scaled, and normalised as for ImageNet."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from search_spaces.errors import DataError
from workers.workloads.image_classification.data import load

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def _subset(data: Mapping[str, Any], count: int) -> Any:
    if data.get("name", "builtin") == "builtin":
        data = {"train": count, "test": 1, **data}
    images = load(data).train
    if len(images.labels) < count:
        raise DataError(f"fixed.images is {count}, the data set has {len(images.labels)} images")
    return images


def labels(data: Mapping[str, Any], count: int) -> Tensor:
    """Classes of the first `count` images, (count,)."""
    return torch.from_numpy(_subset(data, count).labels[:count].copy())


def blocks(data: Mapping[str, Any], count: int, batch_size: int, size: int) -> Iterator[Tensor]:
    """The first `count` images in batches (b, 3, size, size) of float32."""
    pixels = _subset(data, count).pixels
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    for begin in range(0, count, batch_size):
        part = torch.from_numpy(pixels[begin : min(begin + batch_size, count)].copy()).float() / 255
        if part.shape[-1] != size:
            part = nn.functional.interpolate(
                part, size=(size, size), mode="bilinear", align_corners=False
            )
        yield (part - mean) / std
