from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest


@pytest.fixture
def count_of_kills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No other test that takes it runs meanwhile: the kernel counts its kills for the machine."""
    with (tmp_path_factory.getbasetemp().parent / "kills.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def shared_ray() -> Iterator[None]:
    """One Ray for all tests of a file; dispatchers use the initialised one."""
    import ray

    from automl.dispatch.ray.session import environment

    with environment():
        ray.init(
            address="local",
            num_cpus=8,  # four for one dispatcher, which a whole file uses, the others for sweeps
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
        )
        yield
        ray.shutdown()
