"""The connection to Ray: to a running cluster, or to a Ray that is started here for one sweep.

A Ray that is started here listens on the loopback interface only, is quiet, and has a token.
"""

import contextlib
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import ray

from automl.core import Resources
from automl.errors import UsageError
from search_spaces.hardware import count_cpus
from workers.runtime.devices import slots_on, visible_gpus

CONNECT_SECONDS: Final = 5.0  # for a first answer of the address of a running cluster
_TOKEN_ADVICE: Final = (
    "If it asks for a token, set RAY_AUTH_MODE=token: the token is in RAY_AUTH_TOKEN or "
    "~/.ray/auth_token. "
)
_ENVIRONMENT: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # else other processes, such as the suggester, starve the trials
}


class RaySession:
    """Ray for the duration of a sweep; if this process has initialised Ray, it is left running.

    Args:
        address: of a cluster, "auto" to find one, None to start Ray here.
        num_slots: None for as many as there is room for.
        resources: of a slot.

    Raises:
        UsageError: Ray cannot be reached or started; the message says what to do.

    Attributes:
        num_slots: as given, or as many as there is room for.
        dashboard: address of Ray's dashboard, "" if there is none.
    """

    def __init__(self, address: str | None, num_slots: int | None, resources: Resources) -> None:
        self._undo = contextlib.ExitStack()
        logger = logging.getLogger("ray")
        self._undo.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.ERROR)
        output: Any = _WithoutRay(sys.stdout)
        self._undo.enter_context(contextlib.redirect_stdout(output))
        self._ours = not ray.is_initialized()
        try:
            if self._ours and address is None:
                self._start(num_slots or 1, resources)
            elif self._ours:
                _connect(address or "auto")
        except BaseException:
            self.close()
            raise
        self.num_slots = num_slots or _room(resources)
        client = (address or "").startswith("ray://")
        head = None if client else ray.get_runtime_context().gcs_address
        # Of the Ray that runs: without its address Ray searches, and complains of others' clusters.
        url = ray.init(address=head, ignore_reinit_error=True).dashboard_url
        self.dashboard = f"http://{url}" if url and "://" not in url else url or ""

    def close(self) -> None:
        """Leave Ray; end it if it was started here."""
        if self._ours and ray.is_initialized():
            ray.shutdown()
        self._undo.close()

    def _start(self, num_slots: int, resources: Resources) -> None:
        self._undo.enter_context(environment())
        folder = self._undo.enter_context(own_folder())
        _make_token()
        # With more slots than cores the sweep is slow, but it must not wait for ever.
        num_cpus = max(num_slots * max(1, resources.cpus), count_cpus())
        num_gpus = len(visible_gpus()) if resources.gpus > 0 else None
        failure = ""
        # On a busy machine the dashboard sometimes fails to start.
        for include_dashboard in (True, True, False):
            try:
                ray.init(
                    address="local",
                    _temp_dir=folder,
                    num_cpus=num_cpus,
                    num_gpus=num_gpus,
                    include_dashboard=include_dashboard,
                    dashboard_host="127.0.0.1",
                    log_to_driver=False,
                    configure_logging=False,
                )
            except Exception as error:  # Ray raises bare exceptions
                failure = " ".join(str(error).split())[:300]
                ray.shutdown()
            else:
                return
        raise UsageError(
            f"Ray could not be started here: {failure}. Try `--ray-address` of a running cluster"
        )


class _WithoutRay:
    """Standard output; what a thread of Ray prints, as of lost nodes, is logged instead."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if threading.current_thread().name.startswith("ray_"):
            logging.getLogger(__name__).info("ray: %s", text.rstrip())
            return len(text)
        written: int = self._stream.write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def own_folder() -> Iterator[str]:
    """A temporary folder for Ray that only this account can enter; it is removed at the end.

    In Ray's usual one every account of the machine may rename sockets and listen in their place.
    """
    # The path of a socket may have 107 bytes, and Ray adds about 80 to the folder's.
    folder = tempfile.mkdtemp(prefix="automl-ray-", dir=os.environ.get("RAY_TMPDIR", "/tmp"))
    try:
        yield f"{folder}/ray"  # Ray lets everybody into its folder, but nobody comes that far
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _connect(address: str) -> None:
    _probe(address)
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError) as error:
        raise UsageError(
            f"no Ray cluster was found at {address!r} ({' '.join(str(error).split())[:200]}). "
            f"{_TOKEN_ADVICE}Start one with `ray start --head`, or omit --ray-address to start one "
            "for this sweep alone"
        ) from error
    except (RuntimeError, ray.exceptions.RayError) as error:
        raise UsageError(
            f"the Ray cluster at {address!r} cannot be used: "
            f"{' '.join(str(error).split())[:300]}. It must run the same versions of Ray and "
            "Python, and RAY_AUTH_TOKEN or ~/.ray/auth_token must hold its token"
        ) from error


def _probe(address: str) -> None:
    """Refuse an address without a listener: Ray would try for minutes and then end the process."""
    found = address
    if address == "auto":  # that of the environment, else the last one that was started here
        path = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
        last = path.read_text().strip() if path.exists() else ""
        found = os.environ.get("RAY_ADDRESS") or last
    host, _, port = found.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # Ray reports the mistake
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise UsageError(
            f"no Ray cluster answers at {found}: {error}. Start one with `ray start --head`, or "
            "omit --ray-address to start one for this sweep alone"
        ) from error


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """Set Ray's variables, except those that the user has set, and restore them afterwards."""
    unset = _ENVIRONMENT.keys() - os.environ.keys()
    os.environ.update({name: _ENVIRONMENT[name] for name in unset})
    try:
        yield
    finally:
        for name in unset:
            os.environ.pop(name, None)


def _make_token() -> None:
    """Write a token that only its owner can read; Ray's own would be readable by all users."""
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    path = Path.home() / ".ray" / "auth_token"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "w") as stream:
                stream.write(secrets.token_hex(32))
        path.chmod(0o600)
    except OSError as error:
        raise UsageError(
            f"Ray's token cannot be written to {path} ({error.strerror}): "
            "set RAY_AUTH_TOKEN_PATH to a file of yours"
        ) from error


def _room(resources: Resources) -> int:
    """How many slots fit; a slot is on one node."""
    found = 0
    for node in (one["Resources"] for one in ray.nodes()):
        room = int(node.get("CPU", 0) // max(1, resources.cpus))
        if resources.gpus > 0:
            room = min(room, slots_on(int(node.get("GPU", 0)), resources.gpus))
        found += room
    return max(1, found)
