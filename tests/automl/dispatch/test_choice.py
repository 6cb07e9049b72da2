"""Which dispatcher "auto" stands for, and when an address of Ray is refused."""

from __future__ import annotations

import pytest

from automl.dispatch._make import choose_dispatcher
from automl.errors import UsageError


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)


def test_auto_is_local_without_a_cluster() -> None:
    assert choose_dispatcher("auto", None) == ("local", None)


def test_auto_is_ray_with_an_address() -> None:
    assert choose_dispatcher("auto", "host:6379") == ("ray", "host:6379")


@pytest.mark.parametrize("name", ["auto", "ray"])
def test_the_environment_may_name_the_cluster(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "host:1")
    assert choose_dispatcher(name, None) == ("ray", "host:1")
    assert choose_dispatcher(name, "host:2") == ("ray", "host:2")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert choose_dispatcher("ray", None) == ("ray", None)


def test_auto_is_ray_if_this_process_has_initialised_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    assert choose_dispatcher("auto", None) == ("ray", None)


@pytest.mark.parametrize("name", ["local", "inline"])
def test_another_dispatcher_takes_no_address(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "host:1")
    assert choose_dispatcher(name, None) == (name, None)
    with pytest.raises(UsageError, match="uses no Ray cluster, got the address 'host:2'"):
        choose_dispatcher(name, "host:2")
