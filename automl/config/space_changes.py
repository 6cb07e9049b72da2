"""Changes of a stored space by overrides: `space.lr.high=0.3`, `space.optimizer=[sgd, adam]`."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from automl.errors import SpaceError
from search_spaces import Choice, Space
from search_spaces.parameters import Parameter

from .entries import build
from .nodes import ConfigProblem, ConfigProblems, Node, shown
from .overrides import apply
from .schema import ENTRY_RULE, Entry, add_errors


def with_changes(space: Space, overrides: Sequence[str]) -> Space:
    """The space after overrides of `space.NAME`, as a configuration has them.

    A field that is not named stays. An entry of another name is a new parameter.

    Raises:
        ConfigError: an override is malformed or names something else than a parameter.
    """
    problems = ConfigProblems()
    root = _tree(space)
    for text in overrides:
        if not text.startswith("space."):
            rule = "only the space can be changed here: space.NAME.FIELD=VALUE, space.NAME=[...]"
            problems.found.append(ConfigProblem(f"override {text!r}", 0, "", rule))
    problems.raise_any("the overrides")
    apply(root, overrides, problems)
    problems.raise_any("the overrides")
    entries = root.plain()["space"]
    found = [_parameter(name, entry, space, root, problems) for name, entry in entries.items()]
    problems.raise_any("the overrides")
    return Space(*(p for p in found if p is not None), constraints=space.constraints)


def _tree(space: Space) -> Node:
    """The names of the space with no fields, so that overrides find them."""
    names = {name: Node({}, "the sweep") for name in space.parameters}
    return Node({"space": Node({**names}, "the sweep")}, "the sweep")


def _parameter(
    name: str, entry: Any, space: Space, root: Node, problems: ConfigProblems
) -> Parameter | None:
    base = space.parameters.get(name)
    given = {"choices": entry} if isinstance(entry, list) else entry
    if not isinstance(given, dict):
        problems.under(root, ("space", name), f"{ENTRY_RULE} is needed, got {shown(given)}")
        return None
    if not given and base is not None:
        return base
    try:
        parsed = Entry.model_validate(given)
        words = [*parsed.choices] if parsed.choices and isinstance(base, Choice) else ()
        return build(name, parsed, base, {}, slow=words)
    except ValidationError as error:
        add_errors(error, root, ("space", name), Entry, problems)
    except SpaceError as error:
        problems.under(root, ("space", name), str(error))
    return None
