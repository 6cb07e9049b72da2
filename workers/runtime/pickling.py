"""Pickles an objective for other processes, with the script that it comes from.

Large arrays follow the pickle as they are in memory, so that writing and reading them makes no
copy: workers of one machine map the same file.
"""

import functools
import io
import mmap
import os
import pickle
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import IO, Any, Final

import cloudpickle

from search_spaces.errors import UsageError

from .script import Script, codes_of

PAGE: Final = 4096  # arrays begin at a multiple of it
_TRAILER: Final = struct.Struct("<Q")  # length of the index of the arrays, the last of the file
_SHARED: Final = "AUTOML_SCRIPT"  # the file, for processes that a trial starts
_MAIN: Final = "workers.runtime.script_main"
LARGE: Final = 1 << 20  # bytes of a tensor
MAX_DEPTH: Final = 6  # of the search for a variable that cannot be pickled
_PATHS: Final = sysconfig.get_paths()
_INSTALLED: Final = tuple(  # folders; workers that lack this package say so themselves
    folder + os.sep
    for folder in (_PATHS["purelib"], _PATHS["platlib"], str(Path(__file__).parents[1]))
)
_NAMED: Final = (type, FunctionType, ModuleType, functools._lru_cache_wrapper)


@dataclass(frozen=True)
class Sent:
    """What another process gets.

    Args:
        script: that the objective comes from.
        objective: called with the context of a trial.
        names: the classes and functions of the script that the objective uses.
    """

    script: Script
    objective: Callable[[Any], Any]
    names: dict[str, Any]


def write_objective(objective: Callable[[Any], Any], file: IO[bytes]) -> None:
    """Write an objective to a file, for `read_objective`.

    What comes from a module that workers cannot import by name is pickled by value.

    Raises:
        UsageError: the objective holds an object that cannot be pickled, such as an open file.
    """
    arrays: list[pickle.PickleBuffer] = []
    pickler = _Pickler(file, protocol=5, buffer_callback=arrays.append)
    try:
        pickler.dump(Script.of_this_process(objective))
        pickler.dump(objective)
        pickler.dump(pickler.names)
    except Exception as error:  # of any kind, from the parts of the objective
        cause = _cause(objective, error)
        raise UsageError(f"the objective cannot be sent to workers: {cause}") from None
    finally:
        pickler.forget()
    index = []
    for array in arrays:
        content = array.raw()
        file.write(bytes(-file.tell() % PAGE))
        index.append((file.tell(), content.nbytes, content.readonly))
        file.write(content)
    written = pickle.dumps(index)
    file.write(written + _TRAILER.pack(len(written)))
    file.flush()


def pickle_objective(objective: Callable[[Any], Any]) -> bytes:
    """The objective as bytes, for workers of other machines; see `write_objective`."""
    file = io.BytesIO()
    write_objective(objective, file)
    return file.getvalue()


def read_objective(content: bytes | mmap.mmap) -> Sent:
    """What `write_objective` has written; this process is set up as the script's was.

    Args:
        content: of the file. Arrays are views of it.
    """
    view = memoryview(content if isinstance(content, mmap.mmap) else bytearray(content))
    end = len(view) - _TRAILER.size
    (length,) = _TRAILER.unpack(view[end:])
    arrays = [
        view[start : start + size].toreadonly() if readonly else view[start : start + size]
        for start, size, readonly in pickle.loads(view[end - length : end])
    ]
    stream = content if isinstance(content, mmap.mmap) else io.BytesIO(content)
    unpickler = pickle.Unpickler(stream, buffers=arrays)
    script: Script = unpickler.load()
    script.enter()
    sent = Sent(script, unpickler.load(), unpickler.load())
    vars(sys.modules["__main__"]).update(sent.names)  # by which their objects are pickled
    return sent


def share(descriptor: int) -> mmap.mmap:
    """Map an open file that `write_objective` has written; writing to arrays changes no file.

    Processes that multiprocessing spawns from here read the same file for the script's names.
    """
    main = sys.modules["__main__"]
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    if Path(path).exists():
        os.environ[_SHARED] = path
        main.__spec__ = ModuleSpec(_MAIN, None)
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)


def open_shared() -> Sent:
    """The script and objective of the trial that has started this process."""
    with Path(os.environ[_SHARED]).open("rb") as file:
        return read_objective(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))


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


def _reduce_code(code: CodeType) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """As cloudpickle does, which forgets the file: tracebacks would not name it."""
    return _code, (code.co_filename, *cloudpickle.CloudPickler.dispatch_table[CodeType](code))


def _code(file: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    return make(*arguments).replace(co_filename=file)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Takes cached functions and properties of a script too, and modules without a name to import.

    Attributes:
        names: classes and functions of `__main__` that were pickled.
    """

    dispatch_table = cloudpickle.CloudPickler.dispatch_table.new_child(
        {
            functools._lru_cache_wrapper: _reduce_cached,
            functools.cached_property: lambda cached: (_property, (cached.func, cached.attrname)),
            CodeType: _reduce_code,
        }
    )

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.names: dict[str, Any] = {}
        self._modules: dict[str, bool] = {}  # by name: is it pickled by value?

    def forget(self) -> None:
        """Let modules be pickled by name again, after the last `dump`."""
        for name in [name for name, by_value in self._modules.items() if by_value]:
            cloudpickle.unregister_pickle_by_value(sys.modules[name])
        self._modules.clear()

    def reducer_override(self, obj: Any) -> Any:
        """As cloudpickle does, and note the name and the module."""
        if isinstance(obj, _NAMED):
            self._note(obj.__name__ if isinstance(obj, ModuleType) else obj.__module__)
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__":
            name = obj.__qualname__
            if getattr(sys.modules["__main__"], name, None) is obj:
                self.names[name] = obj
        if (array := _array_of(obj)) is not None:
            return sys.modules["torch"].from_numpy, (array,)
        return super().reducer_override(obj)

    def _note(self, name: str) -> None:
        if name in self._modules:
            return
        registered = name in cloudpickle.list_registry_pickle_by_value()  # by the user
        self._modules[name] = not registered and not _importable(name)
        if self._modules[name]:
            cloudpickle.register_pickle_by_value(sys.modules[name])


def _array_of(value: Any) -> Any:
    """A large tensor of the CPU as an array, which is sent without a copy; else None."""
    torch: Any = sys.modules.get("torch")  # another thread may be importing it
    if type(value) is not getattr(torch, "Tensor", None) or value.nbytes < LARGE:
        return None
    whole = value.is_contiguous() and value.untyped_storage().nbytes() == value.nbytes
    if not whole or value.requires_grad or value.device.type != "cpu":
        return None
    return value.numpy() if value.dtype in (torch.float32, torch.float64, torch.int64) else None


def _cause(objective: Any, error: Exception) -> str:
    """Which variable cannot be pickled, and what to do."""
    place, value = next(_unpicklable(objective, "", MAX_DEPTH), ("", None))
    if not place:
        return f'{error}. Run trials in this process instead: dispatcher="inline"'
    return (
        f"its variable `{place}` is of type {type(value).__module__}.{type(value).__qualname__}, "
        f"which stays in its process ({error}). Make it inside the objective, or run trials in "
        'this process: dispatcher="inline"'
    )


def _unpicklable(value: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    """The parts of a value that cannot be pickled themselves, with the variables they are in."""
    pickler = _Pickler(_Nowhere(), protocol=5, buffer_callback=lambda array: None)
    try:
        pickler.dump(value)
        return
    except Exception:
        parts = _parts(value, place) if depth else {}
    finally:
        pickler.forget()
    inner = (one for name, part in parts.items() for one in _unpicklable(part, name, depth - 1))
    first = next(inner, None)
    yield first if first is not None else (place, value)


def _parts(value: Any, place: str) -> dict[str, Any]:
    """What a value consists of, by how a script would name it."""
    if isinstance(value, functools.partial):
        return {"arguments of partial": (value.args, value.keywords), place: value.func}
    if isinstance(value, MethodType):
        return {"self": value.__self__}
    if isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        filled = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
        names = {name for code in codes_of(value.__code__) for name in code.co_names}
        return {
            **{name: value.__globals__[name] for name in names & value.__globals__.keys()},
            **filled,
        }
    if isinstance(value, dict):
        return {f"{place}[{key!r}]": part for key, part in value.items()}
    if isinstance(value, list | tuple):
        return {f"{place}[{index}]": part for index, part in enumerate(value)}
    if isinstance(value, ModuleType):
        return {}
    prefix = f"{place}." if place else "self."
    return {f"{prefix}{name}": part for name, part in getattr(value, "__dict__", {}).items()}


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


class _Nowhere(io.RawIOBase):
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        """Take everything."""
        return len(data)


def _importable(name: str) -> bool:
    """Whether another process with this `sys.path` finds the same file under a module's name."""
    module = sys.modules.get(name)
    if module is None or name == "__main__" or getattr(module, "__name__", None) != name:
        return True  # cloudpickle always takes `__main__` by value; of others, pickle is right
    parent = name.rpartition(".")[0]
    if parent and not _importable(parent):
        return False
    file = getattr(module, "__file__", None)
    if parent and file is None:
        return True  # made by its package: a folder, or a part of a C extension
    if file is not None and file.startswith(_INSTALLED):
        return True  # workers run the same interpreter
    # Without `importlib.util.find_spec`, which must not see the module in `sys.modules`: another
    # thread may be importing it.
    path = getattr(sys.modules.get(parent), "__path__", None)
    specs = (finder.find_spec(name, path) for finder in sys.meta_path)
    spec = next((spec for spec in specs if spec is not None), None)
    return spec is not None and (spec.origin == file or not spec.has_location)
