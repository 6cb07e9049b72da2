"""The peer's side of the conversation: a description first, then finished trials in and a proposal out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

from search_spaces import Choice, Int, Space

Row = dict[str, Any]


class Peer(Protocol):
    def tell(self, rows: list[Row]) -> None: ...

    def ask(self) -> dict[str, Any]: ...


def serve(build: Callable[[Space, int, int], Peer]) -> None:
    """Answer every line of standard input with one of standard output; what the peer prints goes nowhere."""
    out = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    peer: Peer | None = None
    for line in sys.stdin:
        message = json.loads(line)
        if peer is None:
            peer = build(Space.from_dict(message["space"]), message["goals"], message["seed"])
            answer: Row = {"ready": True}
        else:
            peer.tell(message["tell"])
            answer = {"params": peer.ask()}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def outward(space: Space, params: Row) -> Row:
    """Choices as their index, the rest as it is."""
    return {
        name: space.parameters[name].choices.index(value)
        if isinstance(space.parameters[name], Choice)
        else value
        for name, value in params.items()
    }


def inward(space: Space, params: Row) -> Row:
    """The inverse of `outward`, without what is inactive."""
    found = {}
    for name, value in params.items():
        parameter = space.parameters[name]
        if isinstance(parameter, Choice):
            found[name] = parameter.choices[int(value)]
        else:
            number = round(float(value)) if isinstance(parameter, Int) else float(value)
            found[name] = min(max(number, parameter.low), parameter.high)
    return space.strip(found)
