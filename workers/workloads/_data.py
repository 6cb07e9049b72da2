"""Helpers shared by the data readers: names, folders, validation split, order of an epoch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from search_spaces.errors import DataError, UsageError

IntArray = npt.NDArray[np.int64]


def folder_of(data: Mapping[str, Any]) -> Path:
    """The folder in `data.dir`.

    Raises:
        DataError: `data.dir` is missing or does not exist.
    """
    if not data.get("dir"):
        raise DataError(
            f"data set {data.get('name')!r} needs data.dir, the folder that holds its files"
        )
    folder = Path(str(data["dir"])).expanduser()
    if not folder.exists():
        raise DataError(f"data.dir {str(folder)!r} does not exist")
    return folder


def plain_or_gzipped(path: Path) -> Path:
    """The file, or the same name with .gz; raises DataError if neither exists."""
    for candidate in (path, path.with_name(f"{path.name}.gz")):
        if candidate.is_file():
            return candidate
    raise DataError(f"there is neither {path} nor {path.name}.gz")


def check_data_name(data: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The name of the data set, by default "builtin"; raises DataError unless it is in `names`."""
    name = str(data.get("name", "builtin"))
    if name not in names:
        raise DataError(f"data.name is one of {', '.join(names)}, got {name!r}")
    return name


def check_options(fixed: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise UsageError if a fixed option has a different type than its default."""
    for name, default in known.items():
        value = fixed.get(name, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = number if isinstance(default, float) else isinstance(value, type(default))
        if default is not None and (
            not fits or (isinstance(value, bool) and not isinstance(default, bool))
        ):
            raise UsageError(f"fixed.{name} is of type {type(default).__name__}, got {value!r}")


def hold_out(count: int, fraction: float) -> tuple[IntArray, IntArray]:
    """Indices for training and for validation, the same in every trial.

    The second array is empty if `fraction` is 0.
    """
    order = np.random.default_rng(0x5EED).permutation(count)
    held = round(count * fraction)
    return np.sort(order[held:]), np.sort(order[:held])


def epoch_order(count: int, seed: int, epoch: int) -> IntArray:
    """A permutation of `count` items that depends on (seed, epoch) only."""
    return np.random.default_rng([seed, epoch, 0x0DE5]).permutation(count)
