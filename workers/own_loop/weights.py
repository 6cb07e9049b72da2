"""What the loss of a microbatch is a mean over, read from the graph that autograd has recorded.

A mean over tokens that are not padding counts by its tokens: parts of a batch with more padding
count less. torch keeps the number of tokens for the backward pass, so nobody need say it.
"""

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor

from search_spaces.errors import UsageError

_MEAN, _SUM = 1, 2  # torch's numbers of reductions
_SELECTED: Final = ("Index", "MaskedSelect")  # nodes of `losses[mask]`
_DEEP: Final = 32  # nodes
# Nodes that a term of a loss passes on its way to the sum of all terms.
_PASSED: Final = ("Add", "Sub", "Mul", "Div", "Neg", "ToCopy", "View", "Squeeze", "Unsqueeze")


def weight_of(loss: Tensor) -> float | Tensor | None:
    """By what a loss counts beside those of other parts; None if it is by the rows of the part.

    Raises:
        UsageError: the loss is a sum, or has a term that is a mean over fewer items than it looks.
    """
    node: Any = loss.grad_fn
    while node is not None and (node.name().startswith("ToCopy") or _by_number(node)):
        node = node.next_functions[0][0]
    if node is None:
        return None
    name = node.name()
    if name.startswith("Sum") or getattr(node, "_saved_reduction", _MEAN) == _SUM:
        raise UsageError(
            "the loss is a sum, and a batch in parts needs a mean: divide it by the number of its "
            "items, or say trial.backward(loss / number, weight=number)"
        )
    if name.startswith("NllLoss"):
        return node._saved_total_weight  # type: ignore[no-any-return]
    if name.startswith("Mean") and node.next_functions[0][0].name().startswith(_SELECTED):
        return float(node._saved_self_sym_numel)
    if name == "DivBackward0":
        count = node._saved_other
        return count.detach() if count.ndim == 0 and not count.requires_grad else None
    for term in _terms(node):
        if not term.name().startswith("NllLoss") or term._saved_reduction != _MEAN:
            continue
        if float(term._saved_total_weight) != term._saved_target.numel():
            raise UsageError(
                "a term of the loss is a mean over the tokens that are not padding, so its parts "
                "count by their tokens: say trial.backward(loss, weight=tokens)"
            )
    return None


def _by_number(node: Any) -> bool:
    """Whether the node divides by a plain number of Python, which torch marks as such."""
    other = getattr(node, "_saved_other", None)
    if node.name() != "DivBackward0" or not isinstance(other, Tensor) or other.ndim:
        return False
    narrow = torch.float16 if other.is_floating_point() else torch.int8
    return torch.result_type(other, torch.ones((), dtype=narrow)) != other.dtype


def _terms(node: Any) -> Iterator[Any]:
    waiting = [node]
    for _ in range(_DEEP):
        if not waiting:
            return
        one = waiting.pop()
        yield one
        if one.name().startswith(_PASSED):
            waiting += [before for before, _ in one.next_functions if before is not None]
