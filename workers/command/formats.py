"""Writes the parameters of a trial as a configuration: JSON or YAML."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

Params = Mapping[str, Any]


def as_json(params: Params) -> str:
    """An object of JSON."""
    return json.dumps(dict(params))


def as_yaml(params: Params) -> str:
    """A mapping of YAML; each value is as in JSON, which is YAML."""
    return "".join(f"{_plain(name)}: {_plain(value)}\n" for name, value in params.items())


def _plain(value: Any) -> str:
    """A value as in JSON; a number such as 1e-05 as `1.0e-05`, which YAML 1.1 needs."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text


# What a placeholder such as `{config.yaml}` writes; the first is also AUTOML_PARAMS.
CONFIGS: Final[Mapping[str, Callable[[Params], str]]] = {
    "config": as_json,
    "config.json": as_json,
    "config.yaml": as_yaml,
}
