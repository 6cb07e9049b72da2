"""`automl studio`: serve every sweep of a store as a web application."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from automl.errors import UsageError

from .common import STORE, opened, say, store_option

NICE: Final = 5  # controllers and trials on this machine go first
F = TypeVar("F", bound=Callable[..., Any])


def serving_options(command: F) -> F:
    """Where the studio listens, and whether a browser opens."""
    options = [
        click.option(
            "--port",
            default=0,
            type=click.IntRange(0, 65535),
            help="Port to listen on.  [default: any]",
        ),
        click.option(
            "--listen",
            metavar="ADDRESS",
            help="Address of this machine that others can reach, such as 10.0.0.5; needs --tls-cert"
            " and --tls-key, or --insecure.  [default: this machine only]",
        ),
        click.option("--tls-cert", metavar="FILE", help="Certificate for TLS, PEM."),
        click.option("--tls-key", metavar="FILE", help="Its private key, PEM."),
        click.option(
            "--insecure",
            is_flag=True,
            help="Listen without TLS: whoever sees the network's traffic can read the token.",
        ),
        click.option(
            "--token",
            "role",
            type=click.Choice(["operator", "viewer", "agent"]),
            default="operator",
            show_default=True,
            help="Whose address to print: all may read, an operator acts on sweeps, an agent runs"
            " trials.",
        ),
        click.option(
            "--new-tokens",
            is_flag=True,
            help="Replace the tokens; the earlier ones stop working.",
        ),
        click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command("studio", short_help="See every sweep of a store in a browser.")
@store_option
@serving_options
def command(store: str, **options: Any) -> None:
    """Serve every sweep of a store as a web application. Ctrl-C ends it, not the sweeps.

    It prints one address, which holds the token of an operator, who may stop trials and more; give
    a viewer's to others. The tokens are kept in the folder studio/ of the store, readable by you
    alone. Only this machine can reach it. From another one: ssh -L PORT:127.0.0.1:PORT HOST.

    \b
    Examples:
      automl studio
      automl studio --store postgresql://host/runs --port 8800 --open
      automl studio --token viewer
    """
    serve(store, "/", **options)


def serve(
    store: str,
    path: str,
    *,
    port: int,
    listen: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    insecure: bool,
    role: str,
    new_tokens: bool,
    open_browser: bool,
) -> None:
    """Serve the studio of a store until Ctrl-C, and print the address of a page.

    Raises:
        UsageError: the options contradict each other, or the port cannot be used.
    """
    from automl.ledger.database import locate
    from automl.studio.server import HOST, Listening, StudioServer
    from automl.studio.tokens import FOLDER, Role, Tokens
    from workers.files.folder import Folder

    if bool(tls_cert) != bool(tls_key):
        raise UsageError("--tls-cert and --tls-key belong together: one of them is missing")
    if listen and not tls_cert and not insecure:
        raise UsageError(
            f"--listen {listen} lets other machines connect: give --tls-cert and --tls-key, or "
            "accept with --insecure that tokens can be read on the network"
        )
    with opened(store) as ledger:
        listening = Listening(listen or HOST, port, tls_cert, tls_key)
        folder = locate(store)[2]
        tokens = Tokens.kept(Folder(folder, FOLDER), renew=new_tokens) if folder else None
        server = StudioServer(ledger, listening, "" if store == STORE else store, tokens)
        address = server.address(path, Role(role))
        say(address)
        say("Ctrl-C ends the studio, not the sweeps", err=True)
        if open_browser:
            webbrowser.open(address)
        if hasattr(os, "nice"):
            os.nice(NICE)
        server.run()
