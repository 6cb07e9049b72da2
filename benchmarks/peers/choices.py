"""Choices as numbers, for peers that know no categories."""

from __future__ import annotations

from typing import Any

from search_spaces import Choice, Int, Space

Row = dict[str, Any]


def outward(space: Space, params: Row) -> Row:
    """Replace each choice by its index."""
    return {
        name: space.parameters[name].choices.index(value)
        if isinstance(space.parameters[name], Choice)
        else value
        for name, value in params.items()
    }


def inward(space: Space, params: Row) -> Row:
    """The inverse of `outward`; inactive parameters are left out."""
    found = {}
    for name, value in params.items():
        parameter = space.parameters[name]
        if isinstance(parameter, Choice):
            found[name] = parameter.choices[int(value)]
        else:
            number = round(float(value)) if isinstance(parameter, Int) else float(value)
            found[name] = min(max(number, parameter.low), parameter.high)
    return space.strip(found)
