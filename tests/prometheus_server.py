"""A real Prometheus that scrapes one address; `python tests/prometheus_server.py` installs it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_SECONDS = 120.0
Query = Callable[[str], list[Any]]


def missing() -> str | None:
    """Why there can be no Prometheus here; None if there can."""
    return None if shutil.which("prometheus") else "python tests/prometheus_server.py installs it"


def install() -> str | None:
    """Install Prometheus from the packages of the system; why that is not possible, or None."""
    if missing() and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update", "-q"],
            ["apt-get", "install", "-yq", "--no-install-recommends", "prometheus"],
        ):
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    return missing()


@contextmanager
def prometheus(target: str) -> Iterator[Query]:
    """Scrape HOST:PORT each second; the block gets a function that asks for an expression."""
    with tempfile.TemporaryDirectory() as place, socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        folder = Path(place)
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s}\n"
            f"scrape_configs: [{{job_name: automl, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        probe.close()
        server = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def query(expression: str) -> list[Any]:
            asked = urllib.parse.urlencode({"query": expression})
            url = f"http://127.0.0.1:{port}/api/v1/query?{asked}"
            with urllib.request.urlopen(url, timeout=30) as answer:
                found: list[Any] = json.load(answer)["data"]["result"]
                return found

        try:
            yield query
        finally:
            server.terminate()
            server.wait(60)


def wait_for(query: Query, expression: str) -> list[Any]:
    """The first result of an expression that is not empty."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            if found := query(expression):
                return found
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass  # it has not started yet
        time.sleep(0.5)
    raise TimeoutError(f"Prometheus has nothing for {expression}")


if __name__ == "__main__":
    print(install() or "Prometheus is installed")
