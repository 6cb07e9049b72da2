"""Options and fixtures that every test can use."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from automl.dispatch import gpus

# The same examples on every run and no limits of time, so that a busy machine makes no difference.
# `--hypothesis-profile=default` looks for new examples.
settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")
SLOW = (  # files of a minute or more begin first, so that none runs alone at the end
    "test_accelerator.py",
    "test_cluster.py",
    "test_define_by_run.py",
    "test_dispatcher_conformance.py",
    "test_examples.py",
    "test_stoppers.py",
    "test_strategies.py",
    "test_workload_conformance.py",
)


@pytest.fixture(autouse=True, scope="session")
def own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """This test process shares the GPUs of the machine with nobody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(gpus.VARIABLE, str(tmp_path_factory.mktemp("locks")))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--data-dir",
        default=Path(__file__).parents[2] / "shared" / "data",
        type=Path,
        help="folder of the real data sets; tests that need one are skipped if it is absent",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in SLOW)


@pytest.fixture(scope="session")
def frozen_heap() -> None:
    """Keep torch's own objects out of the garbage collection before each measurement of memory."""
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


@pytest.fixture
def data_dir(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.config.getoption("--data-dir")
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; name its folder with --data-dir")
    return folder


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URL of a prefix on a real S3 server, which runs while the tests of a file do."""
    from object_store import s3_server

    with s3_server() as url:
        yield url
