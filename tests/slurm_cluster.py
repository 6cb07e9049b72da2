"""A real Slurm of two nodes on this machine; `python tests/slurm_cluster.py` installs its programs.

Each cluster has its own munge, configuration and ports, and ends with its block. It needs root, as
slurmd does.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
NODES = ("n1", "n2")
START_SECONDS = 60.0
END_SECONDS = 60.0

CONFIGURATION = """
ClusterName=automl
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=30
SlurmdParameters=config_overrides
{nodes}
PartitionName=debug Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why there can be no Slurm here; None if there can."""
    lacks = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacks:
        return f"needs {', '.join(lacks)}: python tests/slurm_cluster.py installs them"
    return None if os.geteuid() == 0 else "slurmd needs root"


def install() -> str | None:
    """Install Slurm if it is not here; why that is not possible, or None."""
    if missing() is None or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return missing()
    quiet = {
        "stdout": subprocess.DEVNULL,
        "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    }
    subprocess.run(["apt-get", "update", "-q"], check=False, **quiet)  # type: ignore[call-overload]
    subprocess.run(  # type: ignore[call-overload]
        ["apt-get", "install", "-yq", "--no-install-recommends", *PACKAGES], check=False, **quiet
    )
    return missing()


@contextmanager
def slurm_cluster(cpus: int = 2) -> Iterator[dict[str, str]]:
    """Two nodes of Slurm; the block gets the environment for sbatch and its like."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o755)
    pids: list[Path] = []
    try:
        _start_munge(folder)
        pids.append(folder / "munge" / "munged.pid")
        configuration = _configure(folder, cpus)
        environment = os.environ | {"SLURM_CONF": str(configuration)}
        _run(["slurmctld", "-c", "-f", str(configuration)], environment)
        pids.insert(0, folder / "slurmctld.pid")
        for node in NODES:
            _run(["slurmd", "-c", "-f", str(configuration), "-N", node], environment)
            pids.insert(0, folder / f"slurmd.{node}.pid")
        _wait_for_nodes(environment)
        try:
            yield environment
        finally:
            subprocess.run(["scancel", "--user=root"], env=environment, check=False)
            _wait_until_empty(environment)
    finally:
        for pid in pids:
            _end(pid)
        shutil.rmtree(folder, ignore_errors=True)


def scontrol(environment: dict[str, str], job: str) -> dict[str, str]:
    """What Slurm says of a job: its fields, such as JobState and Restarts."""
    text = _run(["scontrol", "show", "job", job], environment)
    return dict(part.split("=", 1) for part in text.split() if "=" in part)


def _start_munge(folder: Path) -> None:
    own = folder / "munge"
    own.mkdir(mode=0o755)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    files = {"socket": "socket", "pid-file": "munged.pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{name}={own / file}" for name, file in files.items()]
    _run(["munged", "--force", f"--key-file={key}", *options], dict(os.environ))


def _configure(folder: Path, cpus: int) -> Path:
    (folder / "state").mkdir()
    ports = _free_ports(1 + len(NODES))
    nodes = [
        f"NodeName={name} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} "
        f"CPUs={cpus} RealMemory=4000"
        for name, port in zip(NODES, ports[1:], strict=True)
    ]
    for name in NODES:
        (folder / f"spool.{name}").mkdir()
    path = folder / "slurm.conf"
    path.write_text(
        CONFIGURATION.format(
            host=socket.gethostname(),
            controller=ports[0],
            folder=folder,
            nodes="\n".join(nodes),
            names=",".join(NODES),
        ),
        encoding="utf-8",
    )
    return path


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _wait_for_nodes(environment: dict[str, str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%T"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if found.stdout.split() == ["idle"] * len(NODES):
            return
        time.sleep(0.3)
    raise TimeoutError(f"the nodes of Slurm have not become idle: {found.stdout}{found.stderr}")


def _wait_until_empty(environment: dict[str, str]) -> None:
    """Until the processes of all jobs have ended."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline and _run(["squeue", "-h"], environment).strip():
        time.sleep(0.3)


def _end(pid_file: Path) -> None:
    """End one daemon that was started here, and wait for it."""
    try:
        pid = int(pid_file.read_text())
        os.kill(pid, 15)
    except (OSError, ValueError):
        return
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline and Path(f"/proc/{pid}").exists():
        time.sleep(0.1)


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} fails with {done.returncode}: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    reason = install()
    print(reason or "Slurm is installed")
    sys.exit(0)
