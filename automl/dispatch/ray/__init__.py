"""Runs trials on Ray: `RayDispatcher`."""

import os

# In spite of its name, Ray's switch for binding every port to the loopback interface: without it
# the ports of a Ray that is started here are open to the network, behind a token. It also lets a
# sweep survive if a laptop changes its network. Ray reads it once, when it is imported.
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_unset = _LOOPBACK not in os.environ
os.environ.setdefault(_LOOPBACK, "0")

from .dispatcher import RayDispatcher  # noqa: E402

if _unset:
    del os.environ[_LOOPBACK]

__all__ = ["RayDispatcher"]
