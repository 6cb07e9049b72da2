"""Augmentation of training images, on whole batches of uint8."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]
AUGMENTATIONS = ("none", "flip", "flip_shift")


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
    height = pixels.shape[2]
    mirrored = rng.random(total)[part] < 0.5
    pixels = np.where(mirrored[:, None, None, None], pixels[..., ::-1], pixels)
    if "shift" in name:
        pad = _pad(height)
        pixels = _shift(pixels, *rng.integers(0, 2 * pad + 1, (2, total))[:, part])
    return pixels


def _pad(height: int) -> int:
    return max(height // 8, 1)


def _shift(pixels: Pixels, dy: Indices, dx: Indices) -> Pixels:
    count, _, height, width = pixels.shape
    pad = _pad(height)
    padded = np.pad(pixels, ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="reflect")
    views: Any = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    return cast(Pixels, views[np.arange(count), :, dy, dx])
