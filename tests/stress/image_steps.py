"""Run the steps of examples/cluster/Dockerfile in a new root folder, and a sweep in the result.

    python tests/stress/image_steps.py [--check] [--mirror URL] [--mount FOLDER ...]

It needs root and debootstrap, and takes about 10 minutes and 10 GB. The base image is made by
debootstrap, with the Python of the same Debian. Settings of this machine for apt and pip apply.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "examples" / "cluster" / "Dockerfile"
BASE = "python:3.11-slim-bookworm"
LINKS = "ln -sf python3 /usr/bin/python"
SETTINGS = (
    *("/etc/pip.conf", "/root/.config/pip/pip.conf", "/etc/resolv.conf", "/etc/hosts"),
    *("/etc/ssl/certs/ca-certificates.crt", "/etc/apt/sources.list.d/debian.sources"),
)
FOLDERS = ("/etc/apt/apt.conf.d",)
TRY = """
cat > /tmp/toy.yaml <<'END'
name: toy
space:
  x: {low: -1.0, high: 1.0, default: 0.5}
goals: minimize loss
budget: {trials: 3}
suggester: random
resources: {cpus: 1}
END
printf 'def objective(trial):\\n    return {"loss": trial.params["x"] ** 2}\\n' > /tmp/train.py
cd /tmp && automl sweep toy.yaml --objective train.py --dispatcher local --workers 1 --json
ray --version && wget --version | head -1 && id
"""


def instructions() -> Iterator[tuple[str, str]]:
    """The steps of the Dockerfile: the word that each begins with, and the rest."""
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, " ".join(rest.split())


class Image:
    """A root folder in which steps of a Dockerfile are carried out.

    Args:
        root: the folder; mirror: of Debian's packages, none for the usual one.
        mounts: folders of this machine that steps may read, such as one with wheels.
    """

    def __init__(self, root: Path, mirror: list[str], mounts: list[str]) -> None:
        self.root = root
        self.mirror = mirror
        self.mounts = mounts
        self.user = "root"
        self.folder = "/"

    def begin(self, base: str) -> None:
        """FROM: a Debian with Python, by debootstrap."""
        if base != BASE:
            raise SystemExit(f"the base image is {base}, this program makes {BASE}")
        packages = "python3,python3-pip,python3-venv,ca-certificates"
        options = ["--variant=minbase", f"--include={packages}"]
        run(["debootstrap", *options, "bookworm", str(self.root), *self.mirror])
        for name in FOLDERS:
            shutil.copytree(name, self.root / name.lstrip("/"), dirs_exist_ok=True)
        for name in ("/proc", "/dev", "/sys", *self.mounts):
            place = self.root / name.lstrip("/")
            place.mkdir(parents=True, exist_ok=True)
            run(["mount", "--rbind", name, str(place)])
        self.run(LINKS)

    def copy(self, sources: list[str], target: str) -> None:
        """COPY: files into a folder, or a folder as a folder."""
        place = self.root / target.lstrip("/")
        for source in sources:
            path = ROOT / source
            if path.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(path, place, ignore=ignored)
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)

    def run(self, line: str) -> None:
        """RUN: a line of sh, as the user of the image, with the settings of this machine."""
        for name in SETTINGS:
            if Path(name).exists():
                place = self.root / name.lstrip("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(name, place)
        environment = {
            "PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin",
            "HOME": "/root" if self.user == "root" else f"/home/{self.user}",
            "PIP_BREAK_SYSTEM_PACKAGES": "1",  # Debian guards its Python, the base image does not
            "PIP_ROOT_USER_ACTION": "ignore",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        kept = {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
        command = f"cd {shlex.quote(self.folder)} && {line}"
        run(
            ["chroot", f"--userspec={self.user}", str(self.root), "/bin/sh", "-ec", command],
            kept | environment,
        )


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run a command; its failure is an error."""
    subprocess.run(command, env=environment, check=True)


def build(image: Image) -> None:
    """Carry out every step, then run a sweep."""
    for word, rest in instructions():
        print(f"== {word} {rest}", flush=True)
        parts = shlex.split(rest)
        if word == "FROM":
            image.begin(rest)
        elif word == "COPY":
            image.copy(parts[:-1], parts[-1])
        elif word == "RUN":
            image.run(rest)
        elif word == "USER":
            image.user = rest
        elif word == "WORKDIR":
            image.folder = rest
        else:
            raise SystemExit(f"this program does not know the step {word}")
    print("== a sweep in the image", flush=True)
    image.run(TRY)


def main() -> int:
    """Build and judge; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail if a step fails")
    parser.add_argument("--mirror", help="of Debian's packages")
    parser.add_argument("--mount", action="append", default=[], help="folder to show in there")
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)  # in a process of its own
    given = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("needs root and debootstrap: apt-get install debootstrap")
        return 2
    if given.root is not None:
        build(Image(given.root, [given.mirror] if given.mirror else [], given.mount))
        return 0
    place = Path(tempfile.mkdtemp(prefix="image-"))
    place.chmod(0o755)
    own_mounts = ["unshare", "--mount", "--propagation=private"]  # they end with the process
    again = [sys.executable, __file__, *sys.argv[1:], f"--root={place / 'root'}"]
    try:
        status = subprocess.run([*own_mounts, *again], check=False).returncode
    finally:
        shutil.rmtree(place)
    print("FAILED" if status else "passed: every step, and a sweep in the image")
    return 1 if status and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
