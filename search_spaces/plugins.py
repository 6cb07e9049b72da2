"""Finding one-file extensions: a knob, workload, strategy, suggester or stopper is a module of its folder.

An installed package adds one through an entry point of the group that `Registry` names. Listing names imports
nothing, so that `automl status` stays fast; a module is imported only when its extension is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import sys
from functools import cache
from importlib import metadata, util
from typing import Generic, TypeVar

from .errors import UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """The extensions of one folder, named after their modules with `separator` for `_`.

    Args:
        noun: what an extension is called in messages, such as "suggester".
        package: the folder as a dotted name; its modules `base` and those that begin with `_` are not extensions.
        group: the entry-point group of installed packages, such as "automl.suggesters".
        base: the base class as "module:Class"; an extension is the class that its module defines and names in
            `__all__`, or else the only subclass of the base that it defines.
        separator: between the words of a name; `get` takes `-` and `_` alike.
        others: further modules of the folder that are not extensions.
    """

    def __init__(
        self,
        noun: str,
        package: str,
        group: str,
        base: str,
        separator: str = "-",
        others: tuple[str, ...] = (),
    ) -> None:
        self.noun, self.package, self.group, self.base = noun, package, group, base
        self.separator = separator
        self._others = {"base", *others}

    def names(self) -> list[str]:
        """Sorted names of every extension; imports none of them."""
        spec = util.find_spec(self.package)
        paths = list(spec.submodule_search_locations or ()) if spec else []
        modules = {m.name for m in pkgutil.iter_modules(paths) if m.name[0] != "_"} - self._others
        own = {name.replace("_", self.separator) for name in modules}
        return sorted(own | {entry.name for entry in _installed(self.group, tuple(sys.path))})

    def require(self, name: str) -> str:
        """The name as it is spelt here; raises UsageError where there is none such, and imports nothing."""
        names = self.names()
        if name not in names:
            name = name.replace("-", self.separator).replace("_", self.separator)
        if name not in names:
            raise UsageError(f"unknown {self.noun} {name!r}: {nearest(name, names)}")
        return name

    def get(self, name: str) -> type[T]:
        """The class of that name.

        Raises:
            UsageError: there is no such extension; the message names the nearest one.
        """
        name = self.require(name)
        for entry in _installed(self.group, tuple(sys.path)):
            if entry.name == name:
                found: type[T] = entry.load()
                return found
        module = importlib.import_module(f"{self.package}.{name.replace('-', '_')}")
        base_module, base_name = self.base.split(":")
        base: type[T] = getattr(importlib.import_module(base_module), base_name)
        named = [getattr(module, key) for key in getattr(module, "__all__", ())]
        classes = [
            c for c in named or vars(module).values() if inspect.isclass(c) and issubclass(c, base)
        ]
        own = [c for c in classes if c is not base and (named or c.__module__ == module.__name__)]
        concrete = [c for c in own if not inspect.isabstract(c)]
        if len(concrete) != 1:
            raise UsageError(
                f"{module.__name__} must define exactly one {self.noun}, it defines {len(concrete)}"
            )
        return concrete[0]


@cache
def _installed(group: str, _path: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:
    """The entry points of a group; looking through every installed package takes milliseconds, so once for a path."""
    return tuple(metadata.entry_points(group=group))


def nearest(name: str, known: list[str]) -> str:
    """A hint for a misspelt name: "did you mean 'x'?" or the list of what there is."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
