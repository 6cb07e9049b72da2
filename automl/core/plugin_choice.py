"""How a user names a plugin, such as a stopper: by name, with options, as a class, as an object."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast

from automl.errors import UsageError
from search_spaces.plugins import Registry, nearest
from search_spaces.validation import show

T = TypeVar("T")

# What a value of an annotated option must be, and the words for it.
_KINDS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a text"),
    "None": ((type(None),), "none"),
}


@dataclass(frozen=True)
class PluginChoice(Generic[T]):
    """The plugin that a user has chosen.

    Args:
        name: as the ledger stores it.
        options: for its constructor; plain values.
        given: the user's own class or object; None for the plugin of that name.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    given: Any = None

    def kind(self, registry: Registry[T]) -> type[T]:
        """The class of the plugin."""
        if self.given is None:
            return registry.get(self.name)
        return cast(type[T], self.given if inspect.isclass(self.given) else type(self.given))

    def make(self, registry: Registry[T], *args: Any, **arguments: Any) -> T:
        """The plugin, made with these arguments and its options; the user's own object as it is."""
        if self.given is not None and not inspect.isclass(self.given):
            return cast(T, self.given)
        return self.kind(registry)(*args, **arguments, **self.options)


def choose(registry: Registry[T], given: Any, base: type[T] | None = None) -> PluginChoice[T]:
    """The plugin that a user names. Imports it only if it has options.

    Args:
        registry: of the plugins of this kind.
        given: a name, a mapping of `name` and options, a `PluginChoice`, and if `base` is given,
            a class or an object of it.
        base: the interface.

    Raises:
        UsageError: there is no such plugin, or it has no such option, or the value is wrong.
    """
    noun = registry.noun
    if isinstance(given, PluginChoice):
        return given
    if isinstance(given, str):
        return PluginChoice(registry.require(given))
    if isinstance(given, Mapping):
        options = dict(given)
        name = options.pop("name", None)
        if not isinstance(name, str):
            raise UsageError(f"a {noun} with options needs a name, got {show(dict(given))}")
        choice = PluginChoice[T](registry.require(name), options)
        if options:
            check_options(registry, choice)
        return choice
    kind = given if inspect.isclass(given) else type(given)
    if base is not None and issubclass(kind, base) and kind is not base:
        name = getattr(kind, "name", kind.__name__)
        return PluginChoice(name, given=given)
    forms = "a name, a mapping with a name and options"
    if base is not None:
        forms += f", a class that inherits {base.__module__}.{base.__name__}, or an object of one"
    raise UsageError(f"a {noun} is {forms}; got {show(given)} of type {kind.__name__!r}")


def check_options(registry: Registry[T], choice: PluginChoice[T]) -> None:
    """Raise UsageError if the plugin lacks an option, or if a value has the wrong type."""
    known = options_of(choice.kind(registry))
    what = f"{registry.noun} {choice.name!r}"
    for name, value in choice.options.items():
        if name not in known:
            hint = nearest(str(name), sorted(known)) if known else "it has no options"
            raise UsageError(f"{what} has no option {name!r}; {hint}")
        kinds = [_KINDS[part] for part in known[name]]
        right = any(isinstance(value, types) for types, _ in kinds)
        if known[name] and (not right or (isinstance(value, bool) and "bool" not in known[name])):
            needed = " or ".join(words for _, words in kinds)
            raise UsageError(f"{name} of {what} must be {needed}, got {show(value)}")


def options_of(kind: type) -> dict[str, tuple[str, ...]]:
    """The options of a plugin's class: keyword-only arguments of its constructors, plain values.

    The arguments that every plugin of its interface takes, such as `seed`, are none.

    Returns:
        By name the alternatives of its annotation (keys of `_KINDS`); none if it has none.
    """
    found: dict[str, tuple[str, ...]] = {}
    common: set[str] = set()
    for level in kind.__mro__:
        if "__init__" not in vars(level):
            continue
        if inspect.isabstract(level):
            common |= set(inspect.signature(level.__init__).parameters)  # type: ignore[misc]
            continue
        for name, parameter in inspect.signature(level.__init__).parameters.items():  # type: ignore[misc]
            if parameter.kind is not parameter.KEYWORD_ONLY or name in found:
                continue
            bare = parameter.annotation is parameter.empty
            text = "" if bare else inspect.formatannotation(parameter.annotation)
            parts = tuple(re.split(r"\s*\|\s*", text)) if text else ()
            if set(parts) <= set(_KINDS):
                found[name] = parts
    return {name: parts for name, parts in found.items() if name not in common}
