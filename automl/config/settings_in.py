"""Puts values of parameters into the text of a configuration; comments and order stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def with_settings(text: str, values: Mapping[str, Any]) -> str | None:
    """The text with the entry `[VALUE]` for each parameter under `space:`.

    Args:
        text: of a configuration that was checked.
        values: by parameter.

    Returns:
        None if `space:` is not a mapping in lines of its own, so that there is no place for them.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode), "the configuration was checked"
    sections = {key.value: value for key, value in root.value}
    space = sections.get("space")
    if not isinstance(space, yaml.MappingNode) or space.flow_style or not space.value:
        return None
    entries = {key.value: value for key, value in space.value}
    changes = []
    begin = space.value[0][0].start_mark
    for name, value in values.items():
        entry = f"[{_scalar(value)}]"
        if name in entries:
            node = entries[name]
            changes.append((node.start_mark.index, _end(node), entry))
        else:
            changes.append((begin.index, begin.index, f"{name}: {entry}\n{' ' * begin.column}"))
    for start, end, new in sorted(changes, key=lambda change: change[:2], reverse=True):
        text = text[:start] + new + text[end:]
    return text


def as_yaml(values: Mapping[str, Any]) -> str:
    """The lines under `space:` that fix these values."""
    return "\n".join(["space:", *(f"  {name}: [{_scalar(v)}]" for name, v in values.items())])


def _scalar(value: Any) -> str:
    line: str = yaml.safe_dump([value], default_flow_style=True, width=10**6)
    return line.strip()[1:-1]


def _end(node: yaml.Node) -> int:
    """Where the text of a node ends; that of a block ends with its last scalar."""
    if isinstance(node, yaml.ScalarNode) or getattr(node, "flow_style", False) or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)
