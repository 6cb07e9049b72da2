"""Metrics of a sweep at an address that Prometheus scrapes."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from automl.core import Snapshot
from automl.errors import UsageError

from .metrics import PrometheusMeter, SweepMetrics

LOOPBACK: Final = "127.0.0.1"
_ADDRESS: Final = re.compile(r"(?:(?P<host>[^:\s]+|\[[^\]\s]+\]):)?(?P<port>\d{1,5})")


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
