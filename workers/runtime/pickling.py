"""Pickles an objective for other processes, with the script that it comes from."""

import functools
import os
import pickle
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType, ModuleType
from typing import IO, Any, Final

import cloudpickle

from search_spaces.errors import UsageError

# Folders of modules that workers import by name; a worker that lacks one says so itself.
_INSTALLED: Final = tuple(
    folder + os.sep
    for folder in (
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(__file__).parents[1]),
    )
)


def is_installed(module: ModuleType | None) -> bool:
    """Whether other processes find the module by its name, since it is no file of the user's."""
    return (getattr(module, "__file__", None) or "").startswith(_INSTALLED)


def pickle_objective(objective: Callable[[Any], Any], file: IO[bytes]) -> None:
    """Write the objective to a file, for `read_objective`.

    What comes from the script itself is pickled by value. Workers begin with the arguments, working
    folder and paths of this process.

    Raises:
        UsageError: the objective holds an object that cannot be pickled, such as an open file.
    """
    folders = [str(Path(folder).absolute()) for folder in sys.path if Path(folder).is_dir()]
    script = (list(sys.argv), str(Path.cwd()) if Path().exists() else "", folders)
    try:
        for part in (script, objective):
            _Pickler(file, protocol=5).dump(part)
    except Exception as error:  # of any kind, from the parts of the objective
        raise UsageError(
            f"the objective cannot be sent to workers: {error}. Make such an object inside the "
            'objective, or run trials in this process: dispatcher="inline"'
        ) from None


def read_objective(file: Any) -> Callable[[Any], Any]:
    """What `pickle_objective` has written; this process is set up as the script's was."""
    arguments, folder, paths = pickle.load(file)
    sys.path += [path for path in paths if path not in sys.path]  # the objective may need them
    sys.argv[:] = arguments
    with suppress(OSError):  # another machine may lack it
        os.chdir(folder)
    objective: Callable[[Any], Any] = pickle.load(file)
    names = getattr(objective, "__globals__", {})
    # Objects of the script's classes are pickled by the names that `__main__` has.
    main = {k: v for k, v in names.items() if getattr(v, "__module__", "") == "__main__"}
    vars(sys.modules["__main__"]).update(main)
    return objective


def _reduce_cached(cached: Any) -> Any:
    if cached.__module__ != "__main__":
        return cached.__reduce__()
    return _cached, (cached.__wrapped__, cached.cache_parameters())


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """An empty cache of a function."""
    return functools.lru_cache(**parameters)(function)


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    return _code, (code.co_filename, *cloudpickle.CloudPickler.dispatch_table[CodeType](code))


def _code(file: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    return make(*arguments).replace(co_filename=file)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Takes cached functions too, and keeps the files of functions, which tracebacks name."""

    dispatch_table = cloudpickle.CloudPickler.dispatch_table.new_child(
        {
            functools._lru_cache_wrapper: _reduce_cached,
            CodeType: _reduce_code,
        }
    )
