from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def shared_ray() -> Iterator[None]:
    """One Ray for all tests of a file; the dispatcher uses the initialised one."""
    import ray

    from automl.dispatch.ray.session import environment

    with environment():
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
        )
        yield
        ray.shutdown()
