"""The verbs that serve a store as a web application: `studio` and `dashboard`."""

from __future__ import annotations

import os
import webbrowser
from typing import Any, Final
from urllib.parse import quote

from automl.errors import UsageError

from .common import STORE, opened, say

NICE: Final = 5  # controllers and trials on this machine go first


def dashboard(sweep: str, store: str, **options: Any) -> None:
    """Serve the studio of a store and show one sweep."""
    with opened(store) as ledger:
        ledger.spec(sweep)  # an unknown name is refused before anything is served
    studio(store, page=f"/sweeps/{quote(sweep, safe='')}", **options)


def studio(
    store: str,
    *,
    port: int,
    listen: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    insecure: bool,
    role: str,
    new_tokens: bool,
    open_browser: bool,
    page: str = "/",
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
        address = server.address(page, Role(role))
        say(address)
        say("Ctrl-C ends the studio, not the sweeps", err=True)
        if open_browser:
            webbrowser.open(address)
        if hasattr(os, "nice"):
            os.nice(NICE)
        server.run()
