"""A hook of mkdocs: fills in what a page of the reference takes from the program.

`<!-- commands -->` becomes the help of every verb, `<!-- keys -->` every key of a configuration,
`<!-- knobs -->` every option of a knob. Their texts are in `automl/cli`, `automl/core/spec.py`
and `search_spaces/knobs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from typing import Any

import click

from automl.cli import COMMANDS, cli
from automl.config.resolution import ENTRY_KEYS
from automl.core.key_kinds import Key
from automl.core.spec import KEYS
from search_spaces.knobs import KNOBS, Option


def fill(markdown: str) -> str:
    """The page with the generated parts, without the sentence that says that they are missing."""
    markdown = re.sub(r"^`make docs` adds [^.]*\. ", "", markdown, flags=re.MULTILINE)
    for mark, text in (("commands", commands), ("keys", settings), ("knobs", knobs)):
        comment = f"<!-- {mark} -->"
        if comment in markdown:
            markdown = markdown.replace(comment, text())
    return markdown


def commands() -> str:
    """The help of every verb as Markdown."""
    parts = []
    context = click.Context(cli, info_name="automl", max_content_width=100, terminal_width=100)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        parts += sections(command, name, context)
    return "\n".join(parts)


def sections(command: click.Command, name: str, parent: click.Context) -> list[str]:
    """The help of a verb, and of the verbs in it."""
    with click.Context(
        command, info_name=name, parent=parent, max_content_width=100, terminal_width=100
    ) as inner:
        found = [f"## {inner.command_path}\n\n```text\n{command.get_help(inner)}\n```\n"]
        if isinstance(command, click.Group):
            for verb, part in command.commands.items():
                found += sections(part, verb, inner)
    return found


def parts_of(name: str) -> Mapping[str, Key]:
    """The keys below a key."""
    return ENTRY_KEYS if name == "space" else KEYS[name].kind.keys


def all_keys() -> dict[str, Key]:
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


def settings() -> str:
    """Every key of a configuration: a heading for each, a table of the keys below it."""
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


def knobs() -> str:
    """A row for each option of each knob."""
    rows = [row(name, option) for name in KNOBS.names() for option in KNOBS.get(name).options]
    head = ["| option | knob | values | help | affects |", "|---|---|---|---|---|"]
    return "\n".join((*head, *rows))


def row(name: str, option: Option) -> str:
    """The row of an option."""
    affects = [a for a in ("quality", "speed", "memory") if a in option.affects]
    words = "everything" if len(affects) == 3 else ", ".join(affects)
    return f"| `{option.name}` | {name} | {tuned(option)} | {option.help} | {words} |"


def tuned(option: Option) -> str:
    """The tuned values of an option."""
    if option.choices:
        words = [str(c).lower() if isinstance(c, bool) else str(c) for c in option.choices]
        named = f"; if named: {', '.join(option.on_request)}" if option.on_request else ""
        return ", ".join(words) + named
    if option.low is None:
        return "as the machine allows"
    return f"{option.low:g} to {option.high:g}" + (", log" if option.log else "")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fills in the page; called by mkdocs."""
    return fill(markdown)
