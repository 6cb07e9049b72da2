"""A hook of mkdocs: fills in what a page of the reference takes from the program.

`<!-- commands -->` becomes the help of every verb, `<!-- keys -->` every key of a configuration.
"""

from __future__ import annotations

from typing import Any

import click

from automl.cli import COMMANDS, cli
from automl.config import reference


def fill(markdown: str) -> str:
    """The page with the generated parts."""
    for mark, text in (("commands", commands), ("keys", reference.markdown)):
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


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fills in the page; called by mkdocs."""
    return fill(markdown)
