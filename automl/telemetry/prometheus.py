"""Metrics of a sweep at an address that Prometheus scrapes."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from automl.core import Snapshot
from automl.errors import UsageError

from .metrics import UPDATES, SweepMetrics, Update

LOOPBACK: Final = "127.0.0.1"
_ADDRESS: Final = re.compile(r"(?:(?P<host>[^:\s]+|\[[^\]\s]+\]):)?(?P<port>\d{1,5})")


class PrometheusMeter:
    """Makes metrics of prometheus_client in a registry of their own.

    Args:
        sweep: its name, which is a label of every metric.
    """

    def __init__(self, sweep: str) -> None:
        from prometheus_client import CollectorRegistry

        self._sweep = sweep
        self.registry = CollectorRegistry()

    def make(
        self, kind: str, name: str, description: str, *labels: str, bounds: tuple[float, ...] = ()
    ) -> Update:
        """A metric."""
        import prometheus_client

        options: dict[str, Any] = {"buckets": bounds} if bounds else {}
        made = getattr(prometheus_client, kind)(
            f"automl_{name}", description, ("sweep", *labels), registry=self.registry, **options
        )
        if bounds:
            made.labels(sweep=self._sweep)  # from now on it is there, so a rate sees the first

        def update(value: float, **given: str) -> None:
            getattr(made.labels(sweep=self._sweep, **given), UPDATES[kind])(value)

        return update


def read_address(text: str) -> tuple[str, int]:
    """Host and port of `[HOST:]PORT`; without a host, only this machine can connect.

    Raises:
        UsageError: it is none.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise UsageError(
            f"--metrics is [HOST:]PORT, such as 9100, or 0.0.0.0:9100 for other machines too, "
            f"got {text!r}"
        )
    return (found["host"] or LOOPBACK).strip("[]"), int(found["port"])


@contextmanager
def metrics_server(sweep: str, address: str) -> Iterator[Callable[[Snapshot], None]]:
    """Serve the metrics of a sweep; the block gets a function that takes each snapshot.

    Args:
        address: `[HOST:]PORT`; port 0 for a free one, which the attribute `port` then has.

    Raises:
        UsageError: the address cannot be used.
    """
    from prometheus_client import start_http_server

    host, port = read_address(address)
    meter = PrometheusMeter(sweep)
    try:
        server, thread = start_http_server(port, host, meter.registry)
    except OSError as error:
        raise UsageError(
            f"--metrics {address}: metrics cannot be served there ({error.strerror}); "
            "choose another port"
        ) from error
    export: Any = SweepMetrics(meter)
    export.port = server.server_port
    try:
        yield export
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
