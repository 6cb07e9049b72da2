"""Several machines on one, to test clusters; `python tests/machines.py` installs what it needs.

Each machine is a set of Linux namespaces: its own address on a switch, its own processes, host name
and hosts file, its own temporary folder, home and working folder. They share no disk but the
installed programs. A machine can be cut off, slowed down and killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HIDDEN = ("/tmp", "/var/tmp", "/dev/shm", "/root", "/home", "/mnt")
HOME = "/mnt/home"
WORK = "/mnt/work"
HEAD_PORT = 6379
# With a configuration, the head's autoscaler starts the nodes as processes of its machine.
RAY = {
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_FAKE_CLUSTER": "1",
    "RAY_worker_niceness": "0",  # a busy machine would starve the trials, but nothing else
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
}
_QUIET: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}


class Machine:
    """One machine; `Machines.add` makes it.

    Attributes:
        name: its host name.
        address: on the switch.
    """

    def __init__(self, switch: int, number: int, name: str, hosts: str) -> None:
        self.name = name
        self.address = f"10.77.0.{number}"
        self._switch = switch
        self._port = f"port{number}"
        kept = {ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
        kept |= {Path(path).resolve() for path in sys.path if Path(path).is_dir()}
        kept = {one for one in kept if str(one) not in (*HIDDEN, "/")}
        top = [one for one in kept if not any(other in one.parents for other in kept)]
        hidden = [folder for folder in HIDDEN if Path(folder).is_dir()]
        self._process = subprocess.Popen(
            [
                *("unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork"),
                *("--kill-child", "--mount-proc", sys.executable, "-P"),
                *(str(ROOT / "tests" / "machine_init.py"), name, hosts),
                *(os.pathsep.join(map(str, top)), *hidden),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # at its end, unshare complains
            text=True,
            cwd="/",
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self._init = int(children.read_text().split()[0])
        self._plug_in()
        self.run("mkdir", "-p", HOME, WORK)

    def command(self, *words: str, environment: dict[str, str] | None = None) -> list[str]:
        """The command that runs these words on this machine, in its working folder."""
        here = {"HOME": HOME, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        here |= {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
        variables = [f"{key}={value}" for key, value in {**here, **(environment or {})}.items()]
        enter = ["nsenter", "-t", str(self._init), "-m", "-n", "-u", "-i", "-p", f"--wdns={WORK}"]
        return [*enter, "env", "-i", "LC_ALL=C.UTF-8", *variables, *words]

    def run(
        self, *words: str, environment: dict[str, str] | None = None, seconds: float = 200.0
    ) -> str:
        """Run a program on this machine; its output.

        Raises:
            AssertionError: it fails.
        """
        if words[0] == "mkdir":
            command = ["nsenter", "-t", str(self._init), "-m", *words]
        else:
            command = self.command(*words, environment=environment)
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{self.name}: {words}: {done.stdout[-4000:]}"
        return done.stdout

    def start(
        self, *words: str, environment: dict[str, str] | None = None, log: Path
    ) -> subprocess.Popen[bytes]:
        """Start a program on this machine; its output goes to a file outside of it."""
        with log.open("ab") as file:
            return subprocess.Popen(
                self.command(*words, environment=environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def write(self, path: str, text: str) -> None:
        """Write a file on this machine; a relative path is in its working folder."""
        words = self.command("sh", "-c", 'mkdir -p "$(dirname "$0")"; cat > "$0"', path)
        subprocess.run(words, input=text, text=True, check=True)

    def read(self, path: str) -> str:
        """A file of this machine."""
        return self.run("cat", path)

    # ------------------------------------------------------------------ what happens to it

    def cut(self) -> None:
        """Pull its cable out."""
        self._ip("link", "set", self._port, "down")

    def join(self) -> None:
        """Plug its cable in again."""
        self._ip("link", "set", self._port, "up")

    def slow(self, rate: str, burst: str = "32kbit") -> None:
        """Limit what it receives and what it sends to a rate such as "1mbit"."""
        limit = ("root", "tbf", "rate", rate, "burst", burst, "latency", "400ms")
        _in(self._switch, "tc", "qdisc", "replace", "dev", self._port, *limit)
        _in(self._init, "tc", "qdisc", "replace", "dev", "eth0", *limit)

    def kill(self) -> None:
        """Turn it off: every process on it ends at once, and its folders are gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._init, 9)
        self._process.wait()

    def _plug_in(self) -> None:
        peer = ("peer", "name", "eth0", "netns", str(self._init))
        self._ip("link", "add", self._port, "type", "veth", *peer)
        self._ip("link", "set", self._port, "master", "switch", "up")
        _in(self._init, "ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        _in(self._init, "ip", "link", "set", "eth0", "up")

    def _ip(self, *words: str) -> None:
        _in(self._switch, "ip", *words)


class Machines:
    """Machines on one switch, and a Ray cluster on them."""

    def __init__(self) -> None:
        self._switch = subprocess.Popen(
            ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 10.0
        ours = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{self._switch.pid}/ns/net").readlink() == ours:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        _in(self._switch.pid, "ip", "link", "add", "switch", "type", "bridge")
        _in(self._switch.pid, "ip", "link", "set", "switch", "up")
        self.all: list[Machine] = []

    def add(self, name: str, *, hosts: str | None = None) -> Machine:
        """A new machine.

        Args:
            hosts: its hosts file; by default as Debian's installer writes it, where the name of the
                machine has the address 127.0.1.1.
        """
        number = len(self.all) + 1
        usual = f"127.0.0.1 localhost\n127.0.1.1 {name}\n"
        machine = Machine(self._switch.pid, number, name, usual if hosts is None else hosts)
        self.all.append(machine)
        return machine

    def close(self) -> None:
        """Turn everything off."""
        for machine in self.all:
            machine.kill()
        self._switch.kill()
        self._switch.wait()


def start_head(machine: Machine, num_cpus: int = 0, **options: str) -> str:
    """Start the head of a Ray cluster on a machine; its address."""
    where = ["--head", f"--port={HEAD_PORT}", "--include-dashboard=false"]
    _start_ray(machine, where, num_cpus, options)
    return f"{machine.address}:{HEAD_PORT}"


def start_node(machine: Machine, head: str, num_cpus: int = 1, **options: str) -> None:
    """Let a machine join a Ray cluster."""
    _start_ray(machine, [f"--address={head}"], num_cpus, options)


def _start_ray(
    machine: Machine, where: Sequence[str], num_cpus: int, options: dict[str, str]
) -> None:
    more = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    words = [
        *("ray", "start", *where, f"--num-cpus={num_cpus}"),
        *(f"--node-ip-address={machine.address}", "--disable-usage-stats"),
        *("--object-store-memory=80000000", *more),
    ]
    for left in (2, 1, 0):
        try:
            machine.run(*words, environment=RAY)
        except AssertionError as error:
            # Ray gives a node 30 s to start, which is too short on a machine that does much else.
            if not left or "timed out during startup" not in str(error):
                raise
            machine.run("ray", "stop", "--force")  # it sees the processes of this machine only
        else:
            return


@contextlib.contextmanager
def machines() -> Iterator[Machines]:
    """Machines that end with the block."""
    made = Machines()
    try:
        yield made
    finally:
        made.close()


def missing() -> str:
    """Why there can be no machines here; "" if there can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "namespaces need Linux and root"
    for program in ("ip", "tc", "unshare", "nsenter", "hostname"):
        if shutil.which(program) is None:
            return f"the program {program} is not installed"
    words = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"]
    bridge = ["ip", "link", "add", "switch", "type", "bridge"]
    done = subprocess.run([*words, *bridge], check=False, stderr=subprocess.PIPE, **_QUIET)
    return f"namespaces are refused: {done.stderr.decode().strip()}" if done.returncode else ""


def install() -> str:
    """Install the programs if this process may; why there can be no machines, or ""."""
    if "not installed" in missing() and shutil.which("apt-get"):
        for words in (["update", "-q"], ["install", "-yq", "--no-install-recommends", "iproute2"]):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                command = ["apt-get", *words]
                subprocess.run(
                    command, check=False, timeout=240, stderr=subprocess.DEVNULL, **_QUIET
                )
    return missing()


def _in(pid: int, *words: str) -> None:
    """Run a program in the network of a process."""
    command = ["nsenter", "-t", str(pid), "-n", *words]
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE, **_QUIET)
    assert done.returncode == 0, f"{words}: {done.stderr.decode()}"


if __name__ == "__main__":
    print("machines for the tests:", install() or "ready")
