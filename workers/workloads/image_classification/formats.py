"""File formats of images: CIFAR-10's binary archive, and folders of image files."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from search_spaces.errors import DataError, needs
from workers.data import members

SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


class Images(NamedTuple):
    """Pixels (n, 3, height, width) of uint8 and labels (n,) of int64."""

    pixels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]


def from_records(content: bytes, source: str) -> Images:
    """Images from binary records of CIFAR-10: a label byte, then 1,024 bytes per colour.

    Raises:
        DataError: the length or a label is wrong.
    """
    if not content or len(content) % RECORD:
        raise DataError(
            f"{source} has {len(content)} bytes, which is not a multiple of the record "
            f"length {RECORD}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise DataError(f"{source}: labels are 0 to 9, got {labels.min()} to {labels.max()}")
    return Images(records[:, 1:].reshape(-1, *SHAPE), labels)


def read_cifar(source: Path) -> tuple[Images, Images]:
    """Training and test images of CIFAR-10 from a folder or archive of its binary version.

    Some of the training batches may be missing.

    Raises:
        DataError: a file is malformed, or there is no training or no test batch.
    """
    train: list[Images] = []
    test: list[Images] = []
    for name, content in _cifar_files(source):
        is_test = name.rsplit("/", 1)[-1].startswith("test_batch")
        (test if is_test else train).append(from_records(content, name))
    if not train or not test:
        raise DataError(f"{source} has no data_batch_* or no test_batch of CIFAR-10")
    return _joined(train), _joined(test)


def _is_batch(name: str) -> bool:
    stem = name.rsplit("/", 1)[-1]
    return stem in ("test_batch.bin", *(f"data_batch_{i}.bin" for i in range(1, 6)))


def _cifar_files(source: Path) -> Iterator[tuple[str, bytes]]:
    if source.is_dir():
        yield from (
            (path.name, path.read_bytes())
            for path in sorted(source.iterdir())
            if _is_batch(path.name)
        )
    else:
        yield from members(source, _is_batch)


def _joined(batches: list[Images]) -> Images:
    return Images(
        np.concatenate([b.pixels for b in batches]), np.concatenate([b.labels for b in batches])
    )


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
