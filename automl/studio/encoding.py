"""JSON as the studio writes it."""

from __future__ import annotations

import json
from typing import Any

from automl.core.text import json_data


def encoded(content: Any) -> bytes:
    """JSON in which numbers that are not finite are the texts "nan", "inf" and "-inf"."""
    try:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError):
        return json.dumps(json_data(content), allow_nan=False, separators=(",", ":")).encode()
