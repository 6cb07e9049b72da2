"""Images for feature extraction, block by block: scaled, and normalised as for ImageNet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from search_spaces.errors import DataError
from workers.workloads.image_classification.data import check, load

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

__all__ = ["blocks", "check", "labels"]


def _subset(data: Mapping[str, Any], count: int) -> Any:
    section = (
        {"train": count, "test": 1, **data} if data.get("name", "builtin") == "builtin" else data
    )
    images = load(section).train
    if len(images.labels) < count:
        raise DataError(f"{count} images are asked for, the data set has {len(images.labels)}")
    return images


def labels(data: Mapping[str, Any], count: int) -> Tensor:
    """Classes of the first `count` images, (count,)."""
    return torch.from_numpy(_subset(data, count).labels[:count].copy())


def blocks(data: Mapping[str, Any], count: int, batch_size: int, size: int) -> Iterator[Tensor]:
    """The first `count` images, `batch_size` at a time, (b, 3, size, size) of float32."""
    pixels = _subset(data, count).pixels
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    for begin in range(0, count, batch_size):
        part = torch.from_numpy(pixels[begin : min(begin + batch_size, count)].copy()).float() / 255
        if part.shape[-1] != size:
            part = functional.interpolate(
                part, size=(size, size), mode="bilinear", align_corners=False
            )
        yield (part - mean) / std
