"""The verb that serves a store as a web application."""

from __future__ import annotations

import os
import webbrowser
from typing import Final

from .common import STORE, opened, say

NICE: Final = 5  # controllers and trials on this machine go first


def studio(store: str, port: int, open_browser: bool) -> None:
    """Serve the studio of a store until Ctrl-C, and print its address.

    Raises:
        UsageError: the port cannot be used.
    """
    from automl.studio.server import StudioServer

    with opened(store, create=store == STORE) as ledger:  # one may open it before the first sweep
        server = StudioServer(ledger, port, "" if store == STORE else store)
        address = server.address()
        say(address)
        say("Ctrl-C ends the studio, not the sweeps", err=True)
        if open_browser:
            webbrowser.open(address)
        if hasattr(os, "nice"):
            os.nice(NICE)
        server.run()
