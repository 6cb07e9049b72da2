"""Chooses the dispatcher of a sweep and makes it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import Any

from automl.core import SweepSpec, check_room
from search_spaces.errors import UsageError, needs
from workers.runtime.devices import visible_gpus

from .base import Dispatcher
from .inline import AgentsDispatcher, InlineDispatcher


def choose_dispatcher(name: str, ray_address: str | None) -> tuple[str, str | None]:
    """The name of the dispatcher, and the address of the Ray cluster that is used.

    Args:
        name: "auto" for `ray` if a cluster is named or this process has initialised Ray, else for
            `local`; or the name of a dispatcher.
        ray_address: of a cluster; None for the one that the environment names in RAY_ADDRESS.

    Raises:
        UsageError: an address is given to another dispatcher than `ray`, or Ray is not installed.
    """
    if name not in ("auto", "ray"):
        if ray_address is not None:
            raise UsageError(
                f"the dispatcher {name!r} uses no Ray cluster, got the address {ray_address!r}: "
                "omit the address, or choose the dispatcher 'ray'"
            )
        return name, None
    address = ray_address or os.environ.get("RAY_ADDRESS") or None
    if address == "local":  # Ray's word for one that is started here
        address = None
    ray = sys.modules.get("ray")
    if name == "auto" and address is None and not (ray is not None and ray.is_initialized()):
        return "local", None
    if find_spec("ray") is None:
        raise UsageError(needs("the dispatcher 'ray'", "ray") + "; 'local' needs nothing")
    return "ray", address


@contextmanager
def starting(
    name: str, spec: SweepSpec, objective: Callable[[Any], Any] | None, ray_address: str | None
) -> Iterator[Callable[[], Dispatcher]]:
    """A function that returns the dispatcher of that name, see `make_dispatcher`.

    The processes of `local` start at once, while the ledger is opened and suggestions are made;
    those with GPUs only when these are leased.
    """
    if name != "local" or spec.resources.gpus > 0:
        yield lambda: make_dispatcher(name, spec, objective, ray_address)
        return
    with closing(make_dispatcher(name, spec, objective, ray_address)) as dispatcher:
        yield lambda: dispatcher


def make_dispatcher(
    name: str, spec: SweepSpec, objective: Callable[[Any], Any] | None, ray_address: str | None
) -> Dispatcher:
    """The dispatcher of that name for a sweep.

    Args:
        objective: the user's; None for the workload of the spec.
        ray_address: of a running Ray cluster; None to start Ray here, if `name` is "ray".

    Raises:
        UsageError: there is no room for the workers or for the ranks of a trial, or Ray cannot be
            reached.
    """
    if name == "agents":
        return AgentsDispatcher()
    if name == "inline":
        gpus = visible_gpus() if spec.resources.gpus > 0 else []
        return InlineDispatcher(local_slots(spec), objective, gpus)
    if name == "local":
        from .local import LocalDispatcher

        return LocalDispatcher(
            spec.name,
            local_slots(spec),
            spec.resources,
            objective=objective,
            workload=spec.workload,
        )
    from .ray import RayDispatcher

    ray = sys.modules["ray"]
    elsewhere = ray_address is not None or (
        spec.workers is not None and spec.workers.elastic and ray.is_initialized()
    )
    dispatcher = RayDispatcher(
        spec.name,
        spec.workers if elsewhere else local_slots(spec),
        spec.resources,
        objective=objective,
        workload=spec.workload,
        address=ray_address,
    )
    try:
        check_room(spec, dispatcher.most_slots)
    except UsageError:
        dispatcher.close()
        raise
    return dispatcher


def local_slots(spec: SweepSpec) -> int:
    """How many slots a sweep has on this machine; of a range, as many as there is room for."""
    if spec.workers is None:
        return spec.resources.local_slots()
    return min(max(spec.resources.local_slots(), spec.workers.min), spec.workers.max)


def has_own_gpus(spec: SweepSpec, kind: type[Dispatcher], *, local: bool) -> bool:
    """Whether the trials of a sweep run on GPUs of this machine.

    Args:
        kind: of its dispatcher.
        local: whether no address of a cluster is given.
    """
    ray = sys.modules.get("ray") if kind.name == "ray" else None
    here = local and kind.estimates and not (ray is not None and ray.is_initialized())
    return here and spec.resources.gpus > 0
