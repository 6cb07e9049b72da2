"""A hook of mkdocs: writes the reference of the command line from the help of the program."""

from __future__ import annotations

from typing import Any

import click

from automl.cli import COMMANDS, cli

PLACE = "reference/command-line.md"
HEAD = """# Command line

Exit status: 0 done, 1 failed, 2 wrong usage or configuration, 3 no trial succeeded (`ask`: no
trial is left), 10 the trial should stop (`report-step`), 130 interrupted and resumable.
`--json` prints JSON and nothing else on standard output.

Shell completion: `eval "$(_AUTOML_COMPLETE=bash_source automl)"` in `~/.bashrc` (or `zsh_source`,
`fish_source`).
"""


def page() -> str:
    """The help of every verb as Markdown."""
    parts = [HEAD]
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


def on_files(files: Any, config: Any) -> Any:
    """Adds the page; called by mkdocs."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PLACE, content=page()))
    return files
