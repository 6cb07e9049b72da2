"""A setting is declared once, by its `Key`: what it may be, its meaning, an example, its flag.

The fields of `SweepSpec`, `Budget`, `Resources` and `WorkerRange` carry their keys. What reads a
configuration, a flag or a keyword argument derives from them, and so does the reference page.
A plugin, such as a stopper, is named, with options or without, or given as a class or an object.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from automl.errors import UsageError
from search_spaces.errors import WORDS
from search_spaces.plugins import Registry, nearest
from search_spaces.values import show

from . import arguments
from .arguments import WrongValue, parse_duration
from .goals import parse_memory

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Kind:
    """What a value may be.

    Args:
        words: for people.
        read: takes a name for messages and a value; returns the plain value, raises UsageError.
        keys: of its parts, if it is a mapping of known keys.
    """

    words: str
    read: Callable[[str, Any], Any]
    keys: Mapping[str, Key] = field(default_factory=dict)


@dataclass(frozen=True)
class Key:
    """A setting.

    Args:
        kind: of its value.
        meaning: in Markdown, with links from `docs/reference/`.
        example: in YAML; of a key below another one, without that.
        default: its value if it is not given; `MISSING` if it must be.
        words: about the default, if its value says too little.
        flag: of the command line, with the word for its value: "--budget TIME".
    """

    kind: Kind
    meaning: str
    example: str
    default: Any = None
    words: str = ""
    flag: str = ""

    def read(self, name: str, value: Any) -> Any:
        """The plain value; raises UsageError if it has another kind."""
        return None if value is self.default is None else self.kind.read(name, value)

    @property
    def help(self) -> str:
        """The meaning without Markdown and links."""
        text = re.sub(r" See \[.*", "", self.meaning)
        return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "")


def key(
    kind: Kind, meaning: str, example: str, default: Any = MISSING, words: str = "", flag: str = ""
) -> Any:
    """A field of a dataclass that is a setting; a default that is called makes the value."""
    metadata = {"key": Key(kind, meaning, example, default, words, flag)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def keys_of(model: Any) -> dict[str, Key]:
    """The settings of a dataclass, by name."""
    return {one.name: one.metadata["key"] for one in fields(model) if "key" in one.metadata}


class UnknownKey(WrongValue):
    """A key that there is not."""

    def __init__(self, name: str, known: Iterable[str], of: str) -> None:
        said = WORDS.get(str(name), "")
        said = re.sub('`(\\w+)="(.*?)"`', r"`\1: \2`", said)  # as a mapping has it
        hint = said or nearest(name, sorted(known))
        UsageError.__init__(self, f"unknown key {show(name)} of {of}; {hint}")
        self.text = f"unknown key; {hint}"


class WrongParts(UsageError):
    """Parts of a mapping or a list are wrong.

    Args:
        parts: each error with its path.
        right: the other parts.
    """

    def __init__(self, parts: Sequence[tuple[Path, UsageError]], right: Any = None) -> None:
        super().__init__("; ".join(str(error) for _, error in parts))
        self.parts, self.right = parts, right


def errors_of(error: UsageError, at: Path = ()) -> list[tuple[Path, UsageError]]:
    """Each single error with its path."""
    if isinstance(error, WrongParts):
        return [((*at, *path), part) for path, part in error.parts]
    return [(at, error)]


def read_keys(keys: Mapping[str, Key], given: Mapping[str, Any], of: str = "") -> dict[str, Any]:
    """The plain values of the keys that are given.

    Args:
        of: name of the whole, for messages.

    Raises:
        WrongParts: with the error of each wrong key.
    """

    def read(name: Any, value: Any) -> Any:
        if name not in keys:
            raise UnknownKey(name, keys, of)
        return keys[name].read(f"{name} of {of}" if of else name, value)

    return _read_parts(read, given.items())


def _read_parts(
    read: Callable[[Any, Any], Any], given: Iterable[tuple[Any, Any]]
) -> dict[Any, Any]:
    found, wrong = {}, []
    for name, value in given:
        try:
            found[name] = read(name, value)
        except UsageError as error:
            wrong += errors_of(error, (name,))
    if wrong:
        raise WrongParts(wrong, found)
    return found


def _listed(item: Kind, name: str, value: Any) -> tuple[Any, ...]:
    items = list(value) if isinstance(value, list | tuple) else [value]
    return tuple(_read_parts(lambda _, one: item.read(name, one), enumerate(items)).values())


def _mapped(item: Kind, name: str, value: Any) -> dict[str, Any]:
    given = arguments.mapping(name, value).items()
    return _read_parts(lambda part, one: item.read(f"{part} of {name}", one), given)


def _size(name: str, value: Any) -> int:
    return parse_memory(value) if isinstance(value, str) else arguments.whole(name, value, least=1)


def _one_of(names: Sequence[str], name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in names:
        close = difflib.get_close_matches(str(value), names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        words = f"one of {', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
        raise WrongValue(name, words if len(names) > 1 else repr(names[0]), value, hint)
    return value


def whole(least: int, most: int = arguments.MAX) -> Kind:
    """A whole number."""
    words = f"whole number of at least {least:,}"
    words += f" and at most {most:,}" if most < arguments.MAX else ""
    return Kind(words, partial(arguments.whole, least=least, most=most))


def at_least(least: float) -> Kind:
    """A number that is not below a bound."""

    def read(name: str, value: Any) -> float:
        number = arguments.finite(name, value)
        if number < least:
            raise WrongValue(name, f"a number of at least {least:g}", value)
        return number

    return Kind(f"number of at least {least:g}", read)


def one_of(*names: str) -> Kind:
    """One of these words."""
    return Kind(", ".join(f"`{name}`" for name in names), partial(_one_of, names))


def listed(item: Kind) -> Kind:
    """A list, or a single item; a tuple when it is read."""
    return Kind(f"{item.words}, or a list of these", partial(_listed, item))


def mapped(item: Kind) -> Kind:
    """A mapping of names to values of a kind."""
    return Kind("mapping", partial(_mapped, item))


NUMBER: Final = Kind("number", arguments.finite)
FLAG: Final = Kind("true or false", partial(arguments.of_type, kind=bool, rule="true or false"))
TEXT: Final = Kind("text", arguments.text)
MAPPING: Final = Kind("mapping", lambda name, value: dict(arguments.mapping(name, value)))
DURATION: Final = Kind("duration", lambda _, value: parse_duration(value))
SIZE: Final = Kind("size", _size)


T = TypeVar("T")

# The plain annotations of options: the types of a value, and the words for it.
_KINDS: Final[Mapping[str, tuple[Any, str]]] = {
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "str": (str, "a text"),
    "None": (type(None), "none"),
}


@dataclass(frozen=True)
class PluginChoice(Generic[T]):
    """The plugin that a user has chosen.

    Args:
        name: as the ledger stores it.
        options: for its constructor; plain values.
        given: the user's own class or object, which no ledger stores; None for the plugin of that
            name.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    given: Any = field(default=None, compare=False)

    def __str__(self) -> str:
        return str(self.name)  # a stranger's ledger may have any JSON here

    def kind(self, registry: Registry[T]) -> type[T]:
        """The class of the plugin."""
        if self.given is None:
            return registry.get(self.name)
        return cast(type[T], self.given if inspect.isclass(self.given) else type(self.given))

    def make(self, registry: Registry[T], *args: Any, **arguments: Any) -> T:
        """The plugin, made with these arguments and its options; the user's own object as it is.

        Raises:
            UsageError: a ledger, which may say anything, names an unknown plugin or option.
        """
        if self.given is not None and not inspect.isclass(self.given):
            return cast(T, self.given)
        return choose(registry, self).kind(registry)(*args, **arguments, **self.options)


def choose(registry: Registry[T], given: Any, base: type[T] | None = None) -> PluginChoice[T]:
    """The plugin that a user or a ledger names. Imports it only if it has options.

    Args:
        registry: of the plugins of this kind.
        given: a name, a mapping of `name` and options, a `PluginChoice`, and if `base` is given,
            a class or an object of it.
        base: the interface.

    Raises:
        UsageError: there is no such plugin, or it has no such option, or the value is wrong.
    """
    if isinstance(given, str):
        given = PluginChoice[T](given)
    if isinstance(given, Mapping) and "name" in given:
        options = dict(given)
        given = PluginChoice[T](options.pop("name"), options)
    if isinstance(given, PluginChoice):
        if given.given is None:
            given = replace(given, name=registry.require(given.name))
        check_options(registry, given)
        return cast(PluginChoice[T], given)
    kind = given if inspect.isclass(given) else type(given)
    if base is not None and issubclass(kind, base) and kind is not base:
        return PluginChoice(getattr(kind, "name", kind.__name__), given=given)
    forms = "a name, or a mapping of name and options,"
    if base is not None:
        forms += f" or a class that inherits {base.__module__}.{base.__name__}, or an object of it"
    raise WrongValue(registry.noun, forms, given, f"; {nearest('', registry.names())}")


def check_options(registry: Registry[T], choice: PluginChoice[T]) -> None:
    """Raise UsageError if the plugin lacks an option, or if a value has the wrong type."""
    known = options_of(choice.kind(registry)) if choice.options else {}
    what = f"{registry.noun} {choice.name!r}"
    for name, value in choice.options.items():
        if name not in known:
            hint = nearest(str(name), sorted(known)) if known else "it has no options"
            raise UsageError(f"{what} has no option {name!r}; {hint}")
        kinds = ["bool"] if isinstance(value, bool) else known[name]
        if not any(kind in known[name] and isinstance(value, _KINDS[kind][0]) for kind in kinds):
            needed = " or ".join(_KINDS[kind][1] for kind in known[name])
            raise UsageError(f"{name} of {what} must be {needed}, got {show(value)}")


def options_of(kind: type) -> dict[str, list[str]]:
    """The options of a plugin's class: keyword-only arguments of its constructors, plain values.

    The arguments that every plugin of its interface takes, such as `seed`, are none.

    Returns:
        By name the alternatives of its annotation (keys of `_KINDS`).
    """
    found: dict[str, list[str]] = {}
    for level in kind.__mro__:  # the interface comes last
        if "__init__" not in vars(level):
            continue
        for name, parameter in inspect.signature(level.__init__).parameters.items():  # type: ignore[misc]
            parts = re.split(r"\s*\|\s*", inspect.formatannotation(parameter.annotation))
            if inspect.isabstract(level):
                found.pop(name, None)
            elif parameter.kind is parameter.KEYWORD_ONLY and set(parts) <= set(_KINDS):
                found.setdefault(name, parts)
    return found
