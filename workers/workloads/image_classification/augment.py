"""Changes to training images that keep their class, on whole batches of uint8."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
AUGMENTATIONS = ("none", "flip", "flip_shift", "flip_shift_erase")


def augment(pixels: Pixels, name: str, rng: np.random.Generator) -> Pixels:
    """A changed copy of images (n, channels, height, width).

    Args:
        pixels: uint8; name: one of `AUGMENTATIONS`: half of the images mirrored, shifted by up to an eighth of their
            size with mirrored borders, a square of a quarter of the size erased to grey.
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
    shifted: Pixels = views[np.arange(count), :, dy, dx]
    return shifted


def _erase(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    count, _, height, width = pixels.shape
    side = max(height // 4, 1)
    top, left = rng.integers(0, height - side + 1, count), rng.integers(0, width - side + 1, count)
    rows, columns = np.arange(height), np.arange(width)
    in_rows = (rows >= top[:, None]) & (rows < top[:, None] + side)
    in_columns = (columns >= left[:, None]) & (columns < left[:, None] + side)
    hidden = in_rows[:, None, :, None] & in_columns[:, None, None, :]
    return np.where(hidden, np.uint8(128), pixels)
