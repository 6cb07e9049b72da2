"""Writes safetensors files one array at a time, without a copy of all; NumPy's and torch's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

_CODES: Final = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


@dataclass(frozen=True)
class StoredArray:
    """An array as safetensors keep it.

    Args:
        dtype: safetensors' code of its type.
        shape: of the array.
        nbytes: its size.
        content: its bytes, in the order of C.
    """

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    content: Callable[[], Any]

    @classmethod
    def of_tensor(cls, tensor: Tensor) -> StoredArray:
        """A tensor of torch; raises KeyError if safetensors do not have its type."""
        import torch

        def content() -> Any:
            flat = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            return memoryview(flat.numpy())  # type: ignore[arg-type]

        code = _CODES[str(tensor.dtype).removeprefix("torch.")]
        return cls(code, tuple(tensor.shape), tensor.nbytes, content)

    @classmethod
    def of_array(cls, array: np.ndarray[Any, Any]) -> StoredArray:
        """An array of NumPy; raises KeyError if safetensors do not have its type."""

        def content() -> bytes:
            return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()

        return cls(_CODES[array.dtype.name], array.shape, array.nbytes, content)


def write_arrays(file: IO[bytes], arrays: Mapping[str, StoredArray]) -> str:
    """Write a safetensors file; return its sha256 in hexadecimal."""
    header = {}
    end = 0
    for name, array in arrays.items():
        begin = end
        end += array.nbytes
        header[name] = {
            "dtype": array.dtype,
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    hashed = hashlib.sha256()
    for part in (len(text).to_bytes(8, "little"), text):
        hashed.update(part)
        file.write(part)
    for array in arrays.values():
        content = array.content()
        hashed.update(content)
        file.write(content)
    return hashed.hexdigest()
