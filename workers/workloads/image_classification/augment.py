"""Augmentation of training images, on whole batches of uint8."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
AUGMENTATIONS = ("none", "flip", "flip_shift", "flip_shift_erase")


def augment(pixels: Pixels, name: str, rng: np.random.Generator) -> Pixels:
    """An augmented copy of images (n, channels, height, width).

    Half of the images are mirrored; "shift" moves images by up to an eighth of their size, with
    reflected borders; "erase" greys a square of a quarter of the size.

    Args:
        pixels: uint8.
        name: one of `AUGMENTATIONS`.
    """
    if name == "none":
        return pixels
    mirrored = rng.random(len(pixels)) < 0.5
    pixels = np.where(mirrored[:, None, None, None], pixels[..., ::-1], pixels)
    if "shift" in name:
        pixels = _shift(pixels, rng)
    return _erase(pixels, rng) if "erase" in name else pixels


def _shift(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    count, _, height, width = pixels.shape
    pad = max(height // 8, 1)
    padded = np.pad(pixels, ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="reflect")
    views: Any = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    dy, dx = rng.integers(0, 2 * pad + 1, (2, count))
    return cast(Pixels, views[np.arange(count), :, dy, dx])


def _erase(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    count, _, height, width = pixels.shape
    side = max(height // 4, 1)
    in_rows, in_columns = (
        _interval(size, side, rng.integers(0, size - side + 1, count)) for size in (height, width)
    )
    hidden = in_rows[:, None, :, None] & in_columns[:, None, None, :]
    return np.where(hidden, np.uint8(128), pixels)


def _interval(size: int, length: int, start: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Positions within `length` of each start, shape (n, size)."""
    at = np.arange(size)
    return (at >= start[:, None]) & (at < start[:, None] + length)
