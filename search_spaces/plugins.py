"""Discovery of extensions: each knob, workload, strategy, suggester or stopper is one module.

An installed package adds an extension through an entry point of the group that its `Registry`
names. Listing names imports nothing, so `automl status` stays fast; a module is imported when its
extension is requested.
"""

import difflib
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata, util
from typing import Any, Generic, TypeVar, cast

from .errors import UsageError, needs
from .values import show

T = TypeVar("T")


@dataclass(eq=False)
class Registry(Generic[T]):
    """The extensions in one folder, named after their modules, with `separator` in place of `_`.

    Args:
        noun: the word for an extension in messages, such as "suggester".
        package: the dotted name of the folder. Its module `base` and modules that begin with `_`
            are not extensions.
        group: the entry-point group of installed packages, such as "automl.suggesters".
        base: the base class as "module:Class". An extension is the class in the `__all__` of its
            module, or else the only subclass of the base that the module defines.
        separator: between the words of a name; `get` accepts `-` and `_` alike.
        others: further modules of the folder that are not extensions.
        rows: extensions that are declared together in one of these, by name.
    """

    noun: str
    package: str
    group: str
    base: str
    separator: str = "-"
    others: tuple[str, ...] = ()
    rows: Mapping[str, type[T]] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Sorted names of all extensions, without importing them."""
        return sorted({*self._own(), *self._installed()})

    def require(self, name: str) -> str:
        """The name in its standard spelling, without importing the extension.

        Raises:
            UsageError: there is no extension of that name.
        """
        if not isinstance(name, str):
            raise UsageError(f"a {self.noun} is named by a text, got {show(name)}")
        if name in self._own():
            return name
        names = self.names()
        found = name if name in names else re.sub("[-_]", self.separator, name)
        if found not in names:
            raise UsageError(f"unknown {self.noun} {name!r}: {nearest(name, names)}")
        return found

    def get(self, name: str) -> type[T]:
        """The class of that name.

        Raises:
            UsageError: there is no such extension; the message suggests the nearest name. Or it
                needs a `package` that is not installed.
        """
        name = self.require(name)
        found = self._load(name)
        package = getattr(found, "package", "")
        if package and util.find_spec(package) is None:
            raise UsageError(needs(f"the {self.noun} {name!r}", package))
        return found

    def _own(self) -> set[str]:
        """The names of those in the folder: they need no search for installed packages."""
        spec = util.find_spec(self.package)
        paths = list(spec.submodule_search_locations or ()) if spec else []
        modules = {m.name for m in pkgutil.iter_modules(paths) if m.name[0] != "_"}
        files = {name.replace("_", self.separator) for name in modules - {"base", *self.others}}
        return files | self.rows.keys()

    def _installed(self) -> dict[str, metadata.EntryPoint]:
        """Those of installed packages, which are entry points."""
        return {
            entry.name: entry for entry in _entry_points(tuple(sys.path)).select(group=self.group)
        }

    def _load(self, name: str) -> type[T]:
        if name in self.rows:
            return self.rows[name]
        if name not in self._own():
            return cast(type[T], self._installed()[name].load())
        module = importlib.import_module(f"{self.package}.{name.replace('-', '_')}")
        base: type[T] = pkgutil.resolve_name(self.base)
        names = getattr(module, "__all__", vars(module))
        classes = filter(inspect.isclass, [getattr(module, name) for name in names])
        [found] = [
            c
            for c in classes
            if issubclass(c, base) and not inspect.isabstract(c)
            if c.__module__.startswith(module.__name__)
        ]
        return found


@cache
def _entry_points(_path: tuple[str, ...]) -> Any:
    """All entry points; cached by `sys.path`, because the search takes tens of milliseconds."""
    return metadata.entry_points()


def nearest(name: str, known: list[str]) -> str:
    """A hint for a misspelt name: "did you mean 'x'?", or the list of known names."""
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
