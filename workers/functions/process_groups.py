"""Several process groups in one attempt, one after the other, that do not see each other's keys."""

import importlib
import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from torch._C._distributed_c10d import PrefixStore

# torch has no public way to replace a handler, and `env` is that of `init_process_group` without
# an address. If there are none, a second group may fail as it does under torchrun.
_MODULE: Final = importlib.import_module("torch.distributed.rendezvous")  # a function hides it
_HANDLERS: Final[dict[str, Any]] = getattr(_MODULE, "_rendezvous_handlers", {})


@contextmanager
def process_groups_of(variables: Mapping[str, str]) -> Iterator[None]:
    """While inside, `init_process_group` finds the other ranks by these environment variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        with _numbered():
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _numbered() -> Iterator[None]:
    """While inside, each `init_process_group` of this process has keys of its own.

    All process groups of an attempt meet at one store, which outlives them. gloo reads the
    addresses of the other ranks there: without this, a second group may find those of the first.
    """
    original = _HANDLERS.get("env")
    if original is None:
        yield
        return
    numbers = itertools.count()

    def numbered(*arguments: Any, **settings: Any) -> Iterator[Any]:
        prefix = f"group-{next(numbers)}"
        for store, rank, world_size in original(*arguments, **settings):
            yield PrefixStore(prefix, store), rank, world_size

    _HANDLERS["env"] = numbered
    try:
        yield
    finally:
        _HANDLERS["env"] = original
