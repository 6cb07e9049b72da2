"""The reference of the configuration: every key with its type, default, meaning and example.

`docs/reference/configuration.md` shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING

from automl.core.keys import Key
from automl.core.spec import KEYS

from . import entries


def parts_of(name: str) -> Mapping[str, Key]:
    """The keys below a key."""
    return entries.KEYS if name == "space" else KEYS[name].kind.keys


def keys() -> dict[str, Key]:
    """Every key: `goals`, `budget.trials`, `space.low` and so on."""
    below = {f"{name}.{part}": key for name in KEYS for part, key in parts_of(name).items()}
    return {**KEYS, **below}


def default_of(key: Key) -> str:
    """The default of a key, for a person; `required` if there is none."""
    if key.words or key.default is MISSING:
        return key.words or "required"
    if callable(key.default) or key.default in (None, "", ()):
        return "none"
    return f"`{key.default}`"


def markdown() -> str:
    """The reference as Markdown: a heading for each key, a table of the keys below it."""
    lines: list[str] = []
    for name, key in KEYS.items():
        lines += [f"### `{name}`", "", key.meaning, "", f"- Type: {key.kind.words}"]
        lines += [f"- Default: {default_of(key)}", "", "```yaml", key.example, "```", ""]
        if parts := parts_of(name):
            lines += [*_table(parts), ""]
    return "\n".join(lines)


def _table(parts: Mapping[str, Key]) -> Iterator[str]:
    yield "| key | type | default | meaning | example |"
    yield "|---|---|---|---|---|"
    for name, key in parts.items():
        cells = key.kind.words, default_of(key), key.meaning, f"`{key.example}`"
        yield f"| `{name}` | {' | '.join(cells)} |"
