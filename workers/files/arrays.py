"""Writes safetensors files one array at a time, without a copy of all; NumPy's and torch's."""

import json
from collections.abc import Mapping
from typing import IO, Any, Final

import numpy as np

CODES: Final = {
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


def code_of(array: Any) -> str:
    """The type of an array or tensor as safetensors name it; KeyError if they do not have it."""
    return CODES[str(array.dtype).removeprefix("torch.")]


def write_arrays(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    """Write arrays of NumPy and tensors of torch, by name, as a safetensors file."""
    header = {}
    end = 0
    for name, array in arrays.items():
        offsets = [end, end + array.nbytes]
        shape = list(array.shape)
        header[name] = {"dtype": code_of(array), "shape": shape, "data_offsets": offsets}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for array in arrays.values():
        if hasattr(array, "detach"):
            import torch

            array = array.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
