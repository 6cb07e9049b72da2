"""Values as JSON and as YAML."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NO_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "nan", "inf"})


def json_data(value: Any) -> Any:
    """Plain JSON data; numbers that are not finite become the texts "nan", "inf" and "-inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(key): json_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_data(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def compact_json(value: Any) -> str:
    """JSON text without spaces; numbers that are not finite are texts, as in `json_data`."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError):
        return json.dumps(json_data(value), allow_nan=False, separators=(",", ":"))


def yaml_scalar(value: Any) -> str:
    """A value as YAML that every reader takes alike; a nested one is JSON, which is YAML too."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):
        is_plain = _WORD.fullmatch(value) and value.lower() not in _NO_TEXT
        return value if is_plain else json.dumps(value)
    if isinstance(value, float):
        text = repr(value)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    return str(value) if isinstance(value, int) else json.dumps(value)
