"""Changes of a stored space by overrides: `space.lr.high=0.3`, `space.optimizer=[sgd, adam]`."""

from collections.abc import Sequence

from search_spaces import Space

from .entries import read_entry
from .nodes import ConfigProblems, Node
from .overrides import apply


def with_changes(space: Space, overrides: Sequence[str]) -> Space:
    """The space after overrides of `space.NAME`, as a configuration has them.

    A field that is not named stays. An entry of another name is a new parameter.

    Raises:
        ConfigError: an override is malformed or names something else than a parameter.
    """
    problems = ConfigProblems()
    # The names of the space with no fields, so that overrides find them.
    names = {name: Node({}, "the sweep") for name in space.parameters}
    root = Node({"space": Node({**names}, "the sweep")}, "the sweep")
    for text in overrides:
        if not text.startswith("space."):
            rule = "only the space can be changed here: space.NAME.FIELD=VALUE, space.NAME=[...]"
            problems.add(f"override {text!r}", rule)
    problems.raise_any("the overrides")
    apply(root, overrides, problems)
    problems.raise_any("the overrides")
    changed = dict(space.parameters)
    for name, entry in root.plain()["space"].items():
        base = space.parameters.get(name)
        found = (
            read_entry(entry, base, root, name, problems) if entry != {} or base is None else None
        )
        if found:
            changed[name] = found[0]
    problems.raise_any("the overrides")
    return Space(*changed.values(), constraints=space.constraints)
