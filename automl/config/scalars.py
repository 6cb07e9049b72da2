"""Reads scalars by the YAML 1.2 core schema: `1e-3` is a number, `no` and `1:30` are words.

A scalar that YAML readers understand differently (`010`, `.nan`) is refused. The message says how
to write it clearly.
"""

import math
import re

from .nodes import Scalar

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NON_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_LARGEST = 2**63


def plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar.

    Raises:
        ValueError: the number is not finite, too large, or ambiguous.
    """
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _NON_FINITE.fullmatch(text):
        raise ValueError(f"numbers must be finite, got {text}")
    if _DECIMAL.fullmatch(text) or _BASED.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(
                f"numbers must be finite, got {_cut(text)}, which is beyond the largest float"
            )
        return number
    return check_text(text)


def check_text(text: str) -> str:
    """Return the text if it may be a name or a path.

    Raises:
        ValueError: it holds a control character or half of a surrogate pair.
    """
    for character in text:
        control = (character < " " and character not in "\n\t") or character == "\x7f"
        if control or "\ud800" <= character <= "\udfff":
            raise ValueError(f"text must have no control characters, got {_cut(repr(text))}")
    return text


def _integer(text: str) -> int:
    if _LEADING_ZERO.fullmatch(text):
        raise ValueError(
            f"a leading zero means base 8 to some readers, got {_cut(text)}: drop it or quote it"
        )
    # int() refuses thousands of digits with a message of its own, so the length is checked first.
    number = int(text, 0) if len(text) <= 25 else _LARGEST
    if not -_LARGEST <= number < _LARGEST:
        raise ValueError(f"whole numbers must fit 64 bits, got {_cut(text)}")
    return number


def _cut(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
