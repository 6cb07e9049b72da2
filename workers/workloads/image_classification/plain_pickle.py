"""Reads the plain data in a pickle without running any of it.

A pickle is a program for a stack machine; loading one can call anything. Each name that this one
calls is looked up in a short list of stand-ins, as the documentation of `pickle` shows
("Restricting globals"). Only dictionaries, lists, tuples, texts, numbers and arrays can come
out, as in the python version of CIFAR-10.
"""

import pickle
from io import BytesIO
from typing import Any, Final

import numpy as np

from search_spaces.errors import DataError

_KINDS: Final = frozenset("iufb")  # integers, unsigned, floats, booleans


def read(content: bytes) -> Any:
    """The object in a pickle; byte strings of Python 2 come as bytes.

    Raises:
        DataError: the pickle holds more than plain data, or it is damaged.
    """
    try:
        return _plain(_Reader(BytesIO(content), encoding="bytes").load(), {})
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"a damaged pickle: {type(error).__name__}: {error}") from error


def _refuse_bytearray(_: pickle.Unpickler) -> None:  # it reserves whatever length the file states
    raise DataError("the pickle holds more than plain data: a bytearray")


class _Reader(pickle._Unpickler):  # not C's, whose memo a small file can make fill the memory
    dispatch = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: _refuse_bytearray}

    def find_class(self, module: str, name: str) -> Any:
        stand_in = _STAND_INS.get(f"{module}.{name}")
        if stand_in is None:
            raise DataError(f"the pickle holds more than plain data: it names {module}.{name}")
        return _Name(stand_in)


class _Name:
    """What the pickle may call; a new one each time, so that nothing of ours can be changed."""

    def __init__(self, stand_in: Any) -> None:
        self.stand_in = stand_in

    def __call__(self, *arguments: Any) -> Any:
        return self.stand_in(*arguments)


class _DType:
    def __init__(self, text: str | bytes, *_: Any) -> None:
        self.text, self.order = _text(text), ""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1]).replace("|", "")


class _Array:
    def __init__(self, *_: Any) -> None:
        self.value: Any = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        kind = np.dtype(dtype.order + dtype.text)
        if kind.kind not in _KINDS or not isinstance(content, bytes):
            raise DataError(f"the pickle holds an array of {dtype.text!r}, which is not a number")
        self.value = np.frombuffer(content, kind).reshape(shape, order="F" if fortran else "C")


def _encode(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise DataError(f"the pickle holds more than plain data: bytes in {encoding!r}")
    return text.encode("latin-1")


_STAND_INS: Final = {
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy.ndarray": _Array,
    "numpy.dtype": _DType,
    "_codecs.encode": _encode,
}


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _plain(value: Any, done: dict[int, Any]) -> Any:
    """The value with arrays for their stand-ins; each container once: no small file grows large."""
    if isinstance(value, _Array):
        return value.value
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    if not isinstance(value, dict | list | tuple):
        raise DataError(f"the pickle holds more than plain data: a {type(value).__name__}")
    if id(value) not in done:
        done[id(value)] = None  # a cycle ends here
        if isinstance(value, dict):
            done[id(value)] = {_plain(key, done): _plain(item, done) for key, item in value.items()}
        else:
            done[id(value)] = type(value)(_plain(item, done) for item in value)
    return done[id(value)]
