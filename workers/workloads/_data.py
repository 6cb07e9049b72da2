"""What the readers of the workloads share: names, folders, holding out, order of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from search_spaces.errors import DataError, UsageError

IntArray = npt.NDArray[np.int64]


def folder_of(data: Mapping[str, Any]) -> Path:
    """The folder that `data.dir` names.

    Raises:
        DataError: it is not given or not there.
    """
    if not data.get("dir"):
        raise DataError(f"data.name {data.get('name')!r} needs data.dir, the folder that holds it")
    folder = Path(str(data["dir"])).expanduser()
    if not folder.exists():
        raise DataError(f"data.dir names {folder}, which does not exist")
    return folder


def check_data_name(data: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The data set's name, "builtin" where none is given; raises DataError where it is not one of `names`."""
    name = str(data.get("name", "builtin"))
    if name not in names:
        raise DataError(f"data.name is one of {', '.join(names)}, got {name!r}")
    return name


def check_options(fixed: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise UsageError where a known fixed option is of another type than its default."""
    for name, default in known.items():
        value = fixed.get(name, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = number if isinstance(default, float) else isinstance(value, type(default))
        if default is not None and (
            not fits or (isinstance(value, bool) and not isinstance(default, bool))
        ):
            raise UsageError(f"fixed.{name} is of type {type(default).__name__}, got {value!r}")


def hold_out(count: int, fraction: float) -> tuple[IntArray, IntArray]:
    """Indices to train on and to validate on, the same in every trial; the second is empty where `fraction` is 0."""
    order = np.random.default_rng(0x5EED).permutation(count)
    held = round(count * fraction)
    return np.sort(order[held:]), np.sort(order[:held])


def epoch_order(count: int, seed: int, epoch: int) -> IntArray:
    """A permutation of `count` items, a function of (seed, epoch) alone."""
    return np.random.default_rng([seed, epoch, 0x0DE5]).permutation(count)
