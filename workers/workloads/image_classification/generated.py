"""Generated 32x32 images in ten classes of textures and shapes."""

from typing import cast

import numpy as np
import numpy.typing as npt

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
FloatArray = npt.NDArray[np.float32]


def images(count: int, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """`count` images (n, 3, 32, 32) of uint8 and their labels (n,), with balanced classes.

    Position, size, phase, colours and noise vary; a bar hides a part of half of the images.
    """
    rng = np.random.default_rng([seed, 0x1A6E])
    labels = rng.permutation(np.arange(count) % len(CLASSES)).astype(np.uint8)
    masks = np.empty((count, SIZE, SIZE), np.float32)
    for label in range(len(CLASSES)):
        rows = np.flatnonzero(labels == label)
        masks[rows] = _masks(CLASSES[label], len(rows), rng)
    fore, back = (rng.uniform(40, 215, (count, 3, 1, 1)) for _ in range(2))
    back = np.where(np.abs(fore - back).sum(1, keepdims=True) < 120, 255 - fore, back)
    pixels = back + (fore - back) * masks[:, None]
    pixels = _bars(pixels, rng) + rng.normal(0, 22, pixels.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8), labels


def _bars(pixels: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    count = len(pixels)
    start = rng.integers(0, SIZE, (count, 1))
    width = rng.integers(2, 7, (count, 1)) * rng.integers(0, 2, (count, 1))
    at = np.arange(SIZE)
    hidden = (at >= start) & (at < start + width)
    tall = rng.random(count) < 0.5
    mask = np.where(tall[:, None, None], hidden[:, None, :], hidden[:, :, None])[:, None]
    return np.where(mask, rng.uniform(40, 215, (count, 3, 1, 1)), pixels)


def _masks(name: str, count: int, rng: np.random.Generator) -> FloatArray:
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
    return cast(FloatArray, shapes[name]().astype(np.float32))
