"""Runs a peer in its own environment: finished trials come in, proposals go out, as JSON lines.

    PYTHON benchmarks/peers/serve.py smac|hebo

The first line of standard input has `space`, `goals` (their number) and `seed`. Each further line
has `tell`, the trials that are new, and `method`: `ask` for the next proposal, `best` for what a
noisy peer recommends; the answer has `params`. Other output of the peer is discarded.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

from search_spaces import Space

KINDS = {"smac": "Smac", "hebo": "Hebo"}


class AskTellPeer(Protocol):
    """A suggester of another project."""

    def tell(self, rows: list[dict[str, Any]]) -> None:
        """Learn from trials that have ended since the last call."""

    def ask(self) -> dict[str, Any]:
        """Propose the parameters of the next trial."""


def serve(build: Callable[[Space, int, int], AskTellPeer]) -> None:
    """Answer every line of standard input with one of standard output."""
    out = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    peer: AskTellPeer | None = None
    for line in sys.stdin:
        message = json.loads(line)
        if peer is None:
            peer = build(Space.from_dict(message["space"]), message["goals"], message["seed"])
            answer: dict[str, Any] = {"ready": True}
        else:
            peer.tell(message["tell"])
            answer = {"params": getattr(peer, message["method"])()}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", choices=list(KINDS))
    name = parser.parse_args().peer
    package = name.partition("-")[0]
    serve(getattr(importlib.import_module(f"benchmarks.peers.{package}_adapter"), KINDS[name]))


if __name__ == "__main__":
    main()
