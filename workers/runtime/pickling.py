"""Pickles an objective for other processes."""

import functools
import importlib.util
import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from search_spaces.errors import UsageError


def pickle_objective(objective: Callable[[Any], Any]) -> bytes:
    """The objective as bytes.

    If workers cannot import its module by name, the whole module is pickled with it. Modules that
    it imports are found in the folders of this process's `sys.path`.

    Raises:
        UsageError: the objective holds an object that cannot be pickled, such as an open file.
    """
    module = sys.modules.get(getattr(objective, "__module__", None) or "")
    by_value = module is not None and not _importable(module)
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        blob = _dumps(_WithFolders(_dumps(objective)))
    except Exception as error:  # of any kind, from the parts of the objective
        raise UsageError(f"the objective cannot be sent to workers: {error}") from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return blob


def _reduce_cached(cached: Any) -> Any:
    by_value = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
    if cached.__module__ not in by_value:
        return cached.__reduce__()
    return _cached, (cached.__wrapped__, cached.cache_parameters())


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """An empty cache of a function."""
    return functools.lru_cache(**parameters)(function)


def _property(function: Callable[[Any], Any], name: str) -> Any:
    """A cached property, which holds a lock that cannot be pickled."""
    found = functools.cached_property(function)
    found.__set_name__(object, name)
    return found


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Takes cached functions and properties of a script too."""

    dispatch_table = cloudpickle.CloudPickler.dispatch_table.new_child(
        {
            functools._lru_cache_wrapper: _reduce_cached,
            functools.cached_property: lambda cached: (_property, (cached.func, cached.attrname)),
        }
    )


def _dumps(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _WithFolders:
    """Unpickles as the objective, after adding the folders of `sys.path` there."""

    def __init__(self, blob: bytes) -> None:
        self.blob = blob

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[list[str], bytes]]:
        # A local function is pickled by value: it must run before the folders are known.
        def load(folders: list[str], blob: bytes) -> Any:
            import sys

            import cloudpickle

            sys.path += [folder for folder in folders if folder not in sys.path]
            return cloudpickle.loads(blob)

        folders = [str(Path(folder).absolute()) for folder in sys.path if Path(folder).is_dir()]
        return load, (folders, self.blob)


def _importable(module: ModuleType) -> bool:
    """Whether another process finds the same file under the module's name."""
    if module.__name__ == "__main__":
        return True  # cloudpickle always pickles it by value
    file = getattr(module, "__file__", None)
    try:
        loaded = sys.modules.pop(module.__name__)
        try:
            spec = importlib.util.find_spec(module.__name__)
        finally:
            sys.modules[module.__name__] = loaded
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin == file
