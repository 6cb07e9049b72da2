"""Loads a function of the user, named on the command line as FILE:NAME."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from automl.errors import UsageError
from search_spaces.plugins import nearest


def load_objective(target: str | None) -> Callable[[Any], Any] | None:
    """The function that `FILE:NAME` names; None for None.

    Raises:
        UsageError: there is no such file or name, the file cannot be imported, or the name is no
            function.
    """
    if target is None:
        return None
    file, colon, name = target.rpartition(":")
    path = Path(file)
    if not colon or not file or not name.isidentifier():
        raise UsageError(f"--objective is FILE:NAME, such as train.py:objective, got {target!r}")
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(f"--objective: there is no Python file {file!r}")
    known = {key: value for key, value in _load(path).items() if callable(value)}
    if name not in known:
        hint = nearest(name, [key for key in known if not key.startswith("_")])
        raise UsageError(f"--objective: {file} defines no function {name!r}: {hint}")
    function: Callable[[Any], Any] = known[name]
    return function


def _load(path: Path) -> dict[str, Any]:
    """The names that a file defines.

    Its folder becomes importable, as if Python ran the file. The module is removed from
    `sys.modules`, so that its functions are sent to workers by value: they may not have the file.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    assert spec is not None and spec.loader is not None, "it is a Python file"  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    from automl.control.preflight import importing

    shadowed = sys.modules.get(path.stem)
    sys.modules[path.stem] = module
    try:
        with importing(path):
            spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(
            f"--objective: {path} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    finally:
        if shadowed is None:
            del sys.modules[path.stem]
        else:
            sys.modules[path.stem] = shadowed
    return vars(module)
