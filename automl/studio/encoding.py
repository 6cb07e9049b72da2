"""JSON as the studio writes it, and series that are thinned for small figures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from automl.core.text import json_data

SPARK_POINTS: Final = 40


def encoded(content: Any) -> bytes:
    """JSON in which numbers that are not finite are the texts "nan", "inf" and "-inf"."""
    try:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError):
        return json.dumps(json_data(content), allow_nan=False, separators=(",", ":")).encode()


def thinned(values: Sequence[float], most: int = SPARK_POINTS) -> list[float]:
    """At most this many of the values, the last among them."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) <= most:
        return finite
    return [finite[(i + 1) * len(finite) // most - 1] for i in range(most)]
