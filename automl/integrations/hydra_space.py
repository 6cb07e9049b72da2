"""Parameters from sweeps in Hydra's words, and values in its words."""

import json
import re
from typing import Any

from hydra.core.override_parser.types import Override, Transformer

from search_spaces import Choice, Float, Int
from search_spaces.parameters import Parameter


def named(key: str) -> str:
    """The name of the parameter for a key: "+db@src" is "db_src"."""
    return re.sub(r"[^\w.]", "_", key.lstrip("+"))


def parameter(override: Override) -> Parameter:
    """The parameter of a sweep in Hydra's words."""
    key, value = named(override.get_key_element()), override.value()
    if override.is_interval_sweep():
        kind = Int if isinstance(value.start, int) and isinstance(value.end, int) else Float
        return kind(key, value.start, value.end, log="log" in value.tags)
    values = list(override.sweep_iterator(transformer=Transformer.encode))
    if override.is_range_sweep() and len(values) > 1 and all(type(v) is int for v in values):
        return Int(key, min(values), max(values), step=abs(values[1] - values[0]))
    plain = [v if isinstance(v, int | float) else Transformer.str(v) for v in values]
    return Choice(key, plain, ordered=override.is_range_sweep())


def encoded(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    return json.dumps(value) if value is None or isinstance(value, bool | tuple) else str(value)
