"""Which names and values of a configuration only torch could judge."""

from collections.abc import Iterator, Mapping
from typing import Any

from automl.core import parse_constraints
from automl.errors import UsageError
from search_spaces.expressions import Expression
from search_spaces.knobs.parallelism import PARALLELISM, RANKS

from .declaration import Declaration
from .schema import Document


def all_known(document: Document, declaration: Declaration) -> bool:
    """Whether a declaration that was made without torch suffices to find the errors.

    An unknown name may be an option of a strategy, and whether a strategy can run depends on its
    module and on this machine. Both are known only with torch.
    """
    names = set(_names(document))
    if RANKS.name in names or not all(map(declaration.knows, names)):
        return False
    strategies = [document.fixed.get(PARALLELISM.name, "single")]
    entry = (document.space or {}).get(PARALLELISM.name, "auto")
    entry = entry.get("choices", ["single"]) if isinstance(entry, Mapping) else entry
    strategies += ["single"] if entry == "auto" else [entry]
    return all(
        "single" in item if isinstance(item, list | tuple) else item == "single"
        for item in strategies
    )


def _names(document: Document) -> Iterator[str]:
    """The names of parameters, knobs and options that the configuration uses."""
    entries: Mapping[str, Any] = document.space or {}
    yield from (*entries, *document.fixed, *document.beliefs)
    for entry in entries.values():
        when = entry.get("when") if isinstance(entry, Mapping) else None
        yield from when if isinstance(when, Mapping) else ()
    for text in document.constraints:
        try:
            parse_constraints(text)
        except UsageError:
            yield from _expression_names(text)


def _expression_names(text: str) -> tuple[str, ...]:
    """The names in an expression; none if it is not one, which is an error on any machine."""
    try:
        return tuple(Expression(text).names)
    except UsageError:
        return ()
