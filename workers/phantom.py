"""A count of the memory that operations on fake tensors would hold."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

_ATEN = torch.ops.aten
_BY_MASK = {_ATEN.index.Tensor: 1, _ATEN.index_put.default: 1, _ATEN._index_put_impl_.default: 1}
_BY_MASK[_ATEN.index_put_.default] = 1
_SCALARS = {torch.bool: True, torch.float32: 1.0, torch.float64: 1.0}


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums the live storages and remembers the largest sum. Use around operations on fake tensors.

    Args:
        num_real: how many elements a mask of padding selects, which fake tensors cannot know.
    """

    def __init__(self, num_real: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_real = num_real
        self.live: dict[int, int] = {}
        self.now = self.peak = 0

    def restart(self) -> None:
        """Forget the peak so far."""
        self.peak = self.now

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _ATEN._local_scalar_dense.default:
            return _SCALARS.get(args[0].dtype, 1)
        if func is _ATEN.nonzero.default:
            result: Any = torch.empty(self._selected(args[0]), args[0].ndim, dtype=torch.long)
        elif func is _ATEN.masked_select.default:
            result = args[0].new_empty(self._selected(args[1]))
        else:
            if func in _BY_MASK:
                args = (args[0], self._by_number(args[1]), *args[2:])
            result = func(*args, **kwargs)
        for item in tree_iter(result):
            if isinstance(item, Tensor):
                self._add(item.untyped_storage())
        return result

    def _by_number(self, indices: Any) -> list[Tensor | None]:
        numbered: list[Tensor | None] = []
        for index in indices:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                count = self._selected(index)
                numbered += [torch.empty(count, dtype=torch.long) for _ in range(index.ndim)]
            else:
                numbered.append(index)
        return numbered

    def _selected(self, mask: Tensor) -> int:
        return min(self.num_real, mask.numel())

    def _add(self, storage: Any) -> None:
        key = storage._cdata
        if key in self.live:
            return
        self.live[key] = size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._remove, key)

    def _remove(self, key: int) -> None:
        self.now -= self.live.pop(key, 0)
