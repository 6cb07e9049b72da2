"""Reads plain data from a pickle without executing it.

A pickle is a program for a stack machine; loading one can call anything. This reader supports only
the instructions for dictionaries, lists, tuples, texts, numbers and plain NumPy arrays of numbers,
as in the python version of CIFAR-10. Arrays are rebuilt from their bytes; no name is ever imported.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from search_spaces.errors import DataError

_MARK: Final = object()
_CONSTANTS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: Final = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_IGNORED: Final = frozenset({"PROTO", "FRAME", "STOP"})
_NUMBERS: Final = frozenset(
    {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
)
_TEXTS: Final = frozenset({"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"})
_BYTES: Final = frozenset(
    {"STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
)
_NAMES: Final = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
_KINDS: Final = frozenset("iufb")  # integers, unsigned, floats, booleans


@dataclass
class _Name:
    meaning: str


@dataclass
class _DType:
    text: str
    order: str = "="


@dataclass
class _Array:
    value: Any = None


def read(content: bytes) -> Any:
    """The object in a pickle (protocols 0 to 4); byte strings of Python 2 become bytes.

    Raises:
        DataError: the pickle holds more than plain data, or is damaged.
    """
    try:
        return _Machine().run(content)
    except DataError:
        raise
    except (
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise DataError(f"a damaged pickle: {type(error).__name__}: {error}") from error


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(content):
            self._step(opcode.name, argument)
        (result,) = self.stack
        return _plain(result, {})

    def _step(self, name: str, argument: Any) -> None:
        if name in _NUMBERS or name in _TEXTS:
            self.stack.append(argument)
        elif name in _BYTES:
            self.stack.append(argument.encode("latin-1") if isinstance(argument, str) else argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name == "MARK":
            self.stack.append(_MARK)
        elif name not in _IGNORED:
            method = getattr(self, f"_do_{name.lower()}", None)
            if method is None:
                raise DataError(
                    f"the pickle holds more than plain data: instruction {name} is not read"
                )
            method(argument)

    def _marked(self) -> list[Any]:
        at = max(i for i, item in enumerate(self.stack) if item is _MARK)
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def _do_put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    _do_binput = _do_long_binput = _do_put

    def _do_memoize(self, _: None) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _do_get(self, index: int) -> None:
        self.stack.append(self.memo[index])

    _do_binget = _do_long_binget = _do_get

    def _do_dict(self, _: None) -> None:
        items = self._marked()
        self.stack.append(dict(zip(items[::2], items[1::2], strict=True)))

    def _do_list(self, _: None) -> None:
        self.stack.append(self._marked())

    def _do_tuple(self, _: None) -> None:
        self.stack.append(tuple(self._marked()))

    def _do_tuple1(self, _: None) -> None:
        self.stack[-1:] = [tuple(self.stack[-1:])]

    def _do_tuple2(self, _: None) -> None:
        self.stack[-2:] = [tuple(self.stack[-2:])]

    def _do_tuple3(self, _: None) -> None:
        self.stack[-3:] = [tuple(self.stack[-3:])]

    def _do_append(self, _: None) -> None:
        item = self.stack.pop()
        self._top(list).append(item)

    def _do_appends(self, _: None) -> None:
        items = self._marked()
        self._top(list).extend(items)

    def _do_setitem(self, _: None) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self._top(dict)[key] = value

    def _do_setitems(self, _: None) -> None:
        items = self._marked()
        self._top(dict).update(zip(items[::2], items[1::2], strict=True))

    def _top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise DataError(f"the pickle holds more than plain data: {kind.__name__} expected")
        return self.stack[-1]

    def _do_global(self, name: str) -> None:
        if name not in _NAMES:
            raise DataError(
                f"the pickle holds more than plain data: it names {name.replace(' ', '.')}"
            )
        self.stack.append(_Name(_NAMES[name]))

    def _do_stack_global(self, _: None) -> None:
        name = self.stack.pop()
        module = self.stack.pop()
        self._do_global(f"{module} {name}")

    def _do_reduce(self, _: None) -> None:
        arguments = self.stack.pop()
        name = self.stack.pop()
        meaning = name.meaning if isinstance(name, _Name) else "nothing"
        if meaning == "array":
            self.stack.append(_Array())
        elif meaning == "dtype":
            self.stack.append(_DType(_text(arguments[0])))
        elif meaning == "encode" and arguments[1] in ("latin1", "latin-1"):
            self.stack.append(arguments[0].encode("latin-1"))
        else:
            raise DataError("the pickle holds more than plain data: it calls something")

    def _do_build(self, _: None) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, _DType):
            target.order = _text(state[1])
        elif isinstance(target, _Array):
            target.value = _array(*state[1:5])
        else:
            raise DataError("the pickle holds more than plain data: it sets the state of an object")


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _array(
    shape: tuple[int, ...], dtype: _DType, fortran: bool, content: bytes
) -> np.ndarray[Any, Any]:
    order = "" if dtype.order == "|" else dtype.order
    kind = np.dtype(order + dtype.text)
    if kind.kind not in _KINDS or not isinstance(content, bytes):
        raise DataError(f"the pickle holds an array of {dtype.text!r}, expected plain numbers")
    return np.frombuffer(content, kind).reshape(shape, order="F" if fortran else "C")


def _plain(value: Any, done: dict[int, Any]) -> Any:
    """The value with arrays in place of their stand-ins.

    Each container is converted once, so that a small file cannot grow large.
    """
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, _Name | _DType):
        raise DataError("the pickle holds more than plain data: a type")
    if not isinstance(value, dict | list | tuple):
        return value
    if id(value) not in done:
        done[id(value)] = None  # a cycle ends here
        if isinstance(value, dict):
            done[id(value)] = {key: _plain(item, done) for key, item in value.items()}
        else:
            done[id(value)] = type(value)(_plain(item, done) for item in value)
    return done[id(value)]
