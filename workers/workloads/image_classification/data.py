"""Images to classify: generated, CIFAR-10 (Krizhevsky 2009), or folders of image files.

The generated ones are 32x32 in ten classes of textures and shapes. Training images may be
augmented.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from search_spaces.errors import DataError, needs
from workers.workloads._declarative_workload import (
    IntArray,
    check_data_name,
    files_of,
    folder_of,
)
from workers.workloads._public_data import find

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
CLASSES = (
    "horizontal",
    "vertical",
    "diagonal",
    "checks",
    "rings",
    "disc",
    "square",
    "triangle",
    "cross",
    "dots",
)
SIZE = 32
SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
AUGMENTATIONS = ("none", "flip", "flip_shift")
Pixels = npt.NDArray[np.uint8]


class Images(NamedTuple):
    """Pixels (n, 3, height, width) of uint8 and labels (n,) of int64."""

    pixels: Pixels
    labels: IntArray


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
        train, test = int(data.get("train", 2000)), int(data.get("test", 500))
        return ImageDataset(generated(train, 0), generated(test, 1), CLASSES)
    if name == "cifar10":
        return ImageDataset(*read_cifar(find(folder_of(data), SOURCES)), CIFAR_CLASSES)
    return ImageDataset(*read_folders(folder_of(data), int(data.get("size", 32))))


def from_records(content: bytes, source: str) -> Images:
    """Images from binary records of CIFAR-10: a label byte, then 1,024 bytes per colour.

    Raises:
        DataError: the length or a label is wrong.
    """
    if not content or len(content) % RECORD or max(content[::RECORD]) > 9:
        raise DataError(
            f"{source} is not of CIFAR-10: its records have {RECORD} bytes and begin with a label "
            "from 0 to 9"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    return Images(records[:, 1:].reshape(-1, *SHAPE), records[:, 0].astype(np.int64))


@lru_cache(1)
def read_cifar(source: Path) -> tuple[Images, Images]:
    """Training and test images of CIFAR-10 from a folder or archive of its binary version.

    Some of the training batches may be missing.

    Raises:
        DataError: a file is malformed, or there is no training or no test batch.
    """
    train: list[Images] = []
    test: list[Images] = []
    for name, content in files_of(source, _is_batch):
        is_test = name.rsplit("/", 1)[-1].startswith("test_batch")
        (test if is_test else train).append(from_records(content, name))
    if not train or not test:
        raise DataError(f"{source} has no data_batch_* or no test_batch of CIFAR-10")
    return _joined(train), _joined(test)


def _is_batch(name: str) -> bool:
    stem = name.rsplit("/", 1)[-1]
    return stem in ("test_batch.bin", *(f"data_batch_{i}.bin" for i in range(1, 6)))


def _joined(batches: list[Images]) -> Images:
    return Images(
        np.concatenate([b.pixels for b in batches]), np.concatenate([b.labels for b in batches])
    )


@lru_cache(1)
def read_folders(folder: Path, size: int) -> tuple[Images, Images, tuple[str, ...]]:
    """Images under `train/<class>/` and `test/<class>/` (or `val/`), scaled and cropped.

    Args:
        size: height and width of the result.

    Raises:
        DataError: a split or class is missing, an image cannot be read, or Pillow is missing.
    """
    names = (name for name in ("test", "val", "valid") if (folder / name).is_dir())
    test = folder / next(names, "test")
    classes = tuple(sorted(p.name for p in (folder / "train").glob("*") if p.is_dir()))
    if len(classes) < 2 or not test.is_dir():
        raise DataError(
            f"{folder} needs train/<class>/ with two classes or more, and test/<class>/"
        )
    return _read_split(folder / "train", classes, size), _read_split(test, classes, size), classes


def _read_split(folder: Path, classes: tuple[str, ...], size: int) -> Images:
    pixels = []
    labels = []
    for label, name in enumerate(classes):
        paths = sorted(p for p in (folder / name).glob("**/*") if p.suffix.lower() in SUFFIXES)
        if not paths:
            raise DataError(f"{folder / name} holds no image ({', '.join(SUFFIXES)})")
        pixels += [read_image(path, size) for path in paths]
        labels += [label] * len(paths)
    return Images(np.stack(pixels), np.array(labels, np.int64))


def read_image(path: Path, size: int) -> npt.NDArray[np.uint8]:
    """One image as (3, size, size): its shorter side is scaled to `size`, the middle is kept.

    Raises:
        DataError: the image cannot be read, or Pillow is not installed.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise DataError(needs("reading image files", "Pillow", "images")) from error
    try:
        with Image.open(path) as image:
            fitted = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
            return np.asarray(fitted, np.uint8).transpose(2, 0, 1)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read as an image: {error}") from error


@lru_cache(4)
def generated(count: int, seed: int) -> Images:
    """`count` images of 32x32, with balanced classes.

    Position, size, phase, colours and noise vary; a bar hides a part of half of the images.
    """
    rng = np.random.default_rng([seed, 0x1A6E])
    labels = rng.permutation(np.arange(count) % len(CLASSES))
    masks = np.empty((count, SIZE, SIZE), np.float32)
    for label in range(len(CLASSES)):
        rows = np.flatnonzero(labels == label)
        masks[rows] = _masks(CLASSES[label], len(rows), rng)
    fore, back = (rng.uniform(40, 215, (count, 3, 1, 1)) for _ in range(2))
    back = np.where(np.abs(fore - back).sum(1, keepdims=True) < 120, 255 - fore, back)
    pixels = back + (fore - back) * masks[:, None]
    pixels = _bars(pixels, rng) + rng.normal(0, 22, pixels.shape)
    return Images(np.clip(pixels, 0, 255).astype(np.uint8), labels)


def _bars(pixels: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    count = len(pixels)
    start = rng.integers(0, SIZE, (count, 1))
    width = rng.integers(2, 7, (count, 1)) * rng.integers(0, 2, (count, 1))
    at = np.arange(SIZE)
    hidden = (at >= start) & (at < start + width)
    tall = rng.random(count) < 0.5
    mask = np.where(tall[:, None, None], hidden[:, None, :], hidden[:, :, None])[:, None]
    return np.where(mask, rng.uniform(40, 215, (count, 3, 1, 1)), pixels)


def _masks(name: str, count: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """The foreground, (count, 32, 32) in [0, 1]."""
    y, x = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)[:, None]
    period = rng.uniform(5, 11, (count, 1, 1))
    phase = rng.uniform(0, 2 * np.pi, (count, 1, 1))
    wave = 2 * np.pi / period
    cy, cx = rng.uniform(11, 21, (2, count, 1, 1))
    radius = rng.uniform(6, 11, (count, 1, 1))
    dy = y - cy
    dx = x - cx
    distance = np.hypot(dy, dx)
    sign = rng.choice([-1, 1], (count, 1, 1))
    shapes = {
        "horizontal": lambda: np.sin(wave * y + phase) > 0,
        "vertical": lambda: np.sin(wave * x + phase) > 0,
        "diagonal": lambda: np.sin(wave * 0.75 * (x + sign * y) + phase) > 0,
        "checks": lambda: np.sin(wave * y + phase) * np.sin(wave * x + phase) > 0,
        "rings": lambda: np.sin(wave * distance + phase) > 0,
        "disc": lambda: distance < radius,
        "square": lambda: np.maximum(abs(dy), abs(dx)) < radius * 0.9,
        "triangle": lambda: (abs(dx) < (sign * dy + radius) * 0.6) & (abs(dy) < radius),
        "cross": lambda: (
            (np.minimum(abs(dy), abs(dx)) < radius / 3) & (np.maximum(abs(dy), abs(dx)) < radius)
        ),
        "dots": lambda: np.sin(wave * y + phase) * np.sin(wave * x + phase) > 0.6,
    }
    return cast(npt.NDArray[np.float32], shapes[name]().astype(np.float32))


def augment(
    pixels: Pixels,
    name: str,
    rng: np.random.Generator,
    num_images: int | None = None,
    part: slice = slice(None),
) -> Pixels:
    """An augmented copy of images (n, channels, height, width).

    Half of the images are mirrored; "shift" moves images by up to an eighth of their size, with
    reflected borders.

    Args:
        pixels: uint8.
        name: one of `AUGMENTATIONS`.
        rng: of the whole batch.
        num_images: of the whole batch, if the images are a part of it.
        part: the images of the batch that these are; each is changed as in the whole batch.
    """
    if name == "none":
        return pixels
    total = len(pixels) if num_images is None else num_images
    mirrored = rng.random(total)[part] < 0.5
    pixels = np.where(mirrored[:, None, None, None], pixels[..., ::-1], pixels)
    if "shift" not in name:
        return pixels
    count, _, height, width = pixels.shape
    pad = max(height // 8, 1)
    dy, dx = rng.integers(0, 2 * pad + 1, (2, total))[:, part]
    padded = np.pad(pixels, ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="reflect")
    views: Any = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    return cast(Pixels, views[np.arange(count), :, dy, dx])
