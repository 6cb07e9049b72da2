"""Images to classify: generated, CIFAR-10 (Krizhevsky 2009), or folders of image files."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from workers.data import find
from workers.workloads._data import check_data_name, folder_of

from . import generated
from .formats import Images, read_cifar, read_folders

NAMES = ("builtin", "cifar10", "folder")
SOURCES = (
    "cifar-10-batches-bin",
    "cifar-10-binary.tar.gz",
    "cifar-10-binary-subset.tar.gz",
)
CIFAR_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


@dataclass(frozen=True)
class ImageDataset:
    """Training and test images, and the names of their classes."""

    train: Images
    test: Images
    classes: tuple[str, ...]


def check(data: Mapping[str, Any]) -> None:
    """Raise DataError if the data set is missing; does not read it."""
    name = check_data_name(data, NAMES)
    if name != "builtin":
        find(folder_of(data), SOURCES if name == "cifar10" else ("train",))


def load(data: Mapping[str, Any]) -> ImageDataset:
    """Read the data set that the `data` section describes; cached for all trials of the process.

    `builtin` takes `train` and `test`, numbers of images. `cifar10` takes `dir`, which holds an
    archive or its extracted folder. `folder` takes `dir` with train/<class>/ and test/<class>/, and
    `size` in pixels.

    Raises:
        DataError: the data set is missing or malformed.
    """
    name = check_data_name(data, NAMES)
    if name == "builtin":
        return _builtin(int(data.get("train", 2000)), int(data.get("test", 500)))
    if name == "cifar10":
        return _cifar(find(folder_of(data), SOURCES))
    return _folders(folder_of(data), int(data.get("size", 32)))


@lru_cache(2)
def _builtin(train: int, test: int) -> ImageDataset:
    parts = (generated.images(count, seed) for seed, count in enumerate((train, test)))
    first, second = (Images(pixels, labels.astype(np.int64)) for pixels, labels in parts)
    return ImageDataset(first, second, generated.CLASSES)


@lru_cache(1)
def _cifar(source: Path) -> ImageDataset:
    return ImageDataset(*read_cifar(source), CIFAR_CLASSES)


@lru_cache(1)
def _folders(folder: Path, size: int) -> ImageDataset:
    return ImageDataset(*read_folders(folder, size))
