"""A RayJob of Kubernetes: KubeRay makes a Ray cluster for a sweep and removes it at the end.

The fields are those of KubeRay's API reference, version ray.io/v1; `authOptions` needs KubeRay 1.5.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from automl.errors import UsageError

from .sweep_command import SweepCommand, submit

FOLDER: Final = "/sweep"  # of the configuration and the objective, in each pod
MAX_BYTES: Final = 900_000  # of files in a ConfigMap, which may have 1 MiB in all
MAX_NAME: Final = 40  # characters: KubeRay appends some to make names of at most 63
_GRACE_SECONDS: Final = 60  # for trials to save their state when their pod must go
_LABELS: Final = {"app.kubernetes.io/name": "automl"}
_HEAD_RESOURCES: Final = {"cpu": "2", "memory": "8Gi"}
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def resource_name(sweep: str) -> str:
    """The name of a sweep as Kubernetes allows it: lower case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", sweep.lower()).strip("-")[:MAX_NAME].strip("-")


def read_volume(text: str) -> tuple[str, str]:
    """The claim and the folder of `CLAIM:/FOLDER`.

    Raises:
        UsageError: it is none.
    """
    claim, _, folder = text.partition(":")
    if not _LABEL.fullmatch(claim) or not PurePosixPath(folder).is_absolute() or folder == "/":
        raise UsageError(
            f"--volume is CLAIM:/FOLDER, such as runs:/runs for the PersistentVolumeClaim runs, "
            f"got {text!r}"
        )
    return claim, folder.rstrip("/")


@dataclass(frozen=True)
class KubeRayJob:
    """What a RayJob asks Kubernetes for, and the sweep that it runs.

    The head runs the controller and no trials. The configuration and the file of the objective go
    into a ConfigMap; data and everything else that trials need are in the image or on a volume.

    Args:
        sweep: what it runs. Its configuration and objective are files of this machine.
        image: with automl installed.
        workers: pods that run trials.
        max_workers: if it is more than `workers`, Ray's autoscaler adds pods as trials wait.
        gpus_per_worker: NVIDIA GPUs of such a pod, 0 for none.
        cpus_per_worker, memory_per_worker: as Kubernetes takes them, such as "4" and "16Gi".
        namespace: "" for the one of kubectl.
        volumes: claims and the folders where all pods see them.
        secrets: whose keys become environment variables of all pods.
        retries: how often a lost cluster is made again; the sweep then goes on.

    Raises:
        UsageError: the store would be lost with its pod, or a name is not allowed.
    """

    sweep: SweepCommand
    image: str
    workers: int = 1
    max_workers: int = 0
    gpus_per_worker: int = 0
    cpus_per_worker: str = "4"
    memory_per_worker: str = "16Gi"
    namespace: str = ""
    volumes: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    retries: int = 5

    def __post_init__(self) -> None:
        for option, name in (("namespace", self.namespace), *(("secret", s) for s in self.secrets)):
            if name and not _LABEL.fullmatch(name):
                raise UsageError(
                    f"--{option}: lower case letters, digits and hyphens are allowed, got {name!r}"
                )
        if not resource_name(self.sweep.name):
            raise UsageError(
                f"the sweep's name {self.sweep.name!r} has no letter or digit: Kubernetes needs one"
            )
        if 0 < self.max_workers < self.workers:
            raise UsageError(
                f"--max-workers {self.max_workers} is less than --workers {self.workers}"
            )
        store = self.sweep.store
        on_volume = any(PurePosixPath(store).is_relative_to(folder) for _, folder in self.volumes)
        if "://" not in store and not on_volume:
            raise UsageError(
                f"the store {store!r} would be lost with its pod: take a database "
                "(--store postgresql://...), or a folder on a volume that outlives it, such as "
                "--volume CLAIM:/runs --store /runs"
            )

    @property
    def name(self) -> str:
        """Of the RayJob and its ConfigMap."""
        return resource_name(self.sweep.name)

    def manifest(self) -> list[dict[str, Any]]:
        """The ConfigMap and the RayJob.

        Raises:
            UsageError: a file cannot be read, or is too large or not text.
        """
        metadata: dict[str, Any] = {"name": self.name, "labels": dict(_LABELS)}
        if self.namespace:
            metadata["namespace"] = self.namespace
        files, command = self._files()
        entrypoint = [
            "automl",
            *command.arguments(),
            "--ray-address=auto",
            *command.program,
        ]
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files}
        job = {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": dict(metadata),
            "spec": {
                "entrypoint": shlex.join(entrypoint),
                "backoffLimit": self.retries,
                "shutdownAfterJobFinishes": True,
                "ttlSecondsAfterFinished": 60,
                "rayClusterSpec": self._cluster(),
            },
        }
        return [config, job]

    def text(self) -> str:
        """The manifest as YAML, for `kubectl apply`."""
        return yaml.dump_all(self.manifest(), Dumper=_Dumper, sort_keys=False, width=100)

    def apply(self) -> None:
        """Give the manifest to the cluster of kubectl.

        Raises:
            UsageError: there is no kubectl here.
            AutomlError: the cluster refuses it; the message is its own.
        """
        submit(
            ["kubectl", "apply", "-f", "-"],
            self.text(),
            cluster="Kubernetes",
            otherwise="print the manifest with --dry-run and apply it on a machine that has "
            "kubectl",
        )

    def _files(self) -> tuple[dict[str, str], SweepCommand]:
        """The files of the ConfigMap, and the command with their places in a pod."""
        found: dict[str, str] = {}

        def take(name: str) -> str:
            path = Path(name)
            try:
                text = path.read_bytes().decode("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{path} cannot be sent to the cluster: {error}") from error
            if not _KEY.fullmatch(path.name) or found.get(path.name, text) != text:
                raise UsageError(f"{path} needs another name: letters, digits, dots, unique")
            found[path.name] = text
            return f"{FOLDER}/{path.name}"

        options = dict(self.sweep.options)
        if objective := options.get("objective"):
            file, colon, function = objective.rpartition(":")
            options["objective"] = take(file) + colon + function
        command = replace(self.sweep, config=take(self.sweep.config), options=options)
        if sum(len(text.encode()) for text in found.values()) > MAX_BYTES:
            raise UsageError(
                f"{', '.join(found)} are larger than {MAX_BYTES} bytes, which is the most of a "
                "ConfigMap: put them into the image"
            )
        return found, command

    def _cluster(self) -> dict[str, Any]:
        most = max(self.workers, self.max_workers)
        worker = {"cpu": self.cpus_per_worker, "memory": self.memory_per_worker}
        if self.gpus_per_worker:
            worker["nvidia.com/gpu"] = str(self.gpus_per_worker)
        return {
            "authOptions": {"mode": "token"},
            **({"enableInTreeAutoscaling": True} if most > self.workers else {}),
            "headGroupSpec": {
                "rayStartParams": {"num-cpus": "0", "num-gpus": "0"},
                "template": self._pod("ray-head", _HEAD_RESOURCES),
            },
            "workerGroupSpecs": [
                {
                    "groupName": "trials",
                    "replicas": self.workers,
                    "minReplicas": self.workers,
                    "maxReplicas": most,
                    "rayStartParams": {},
                    "template": self._pod("ray-worker", worker),
                }
            ],
        }

    def _pod(self, name: str, resources: Mapping[str, str]) -> dict[str, Any]:
        """The template of a pod with one container; it asks for as much as it may use."""
        mounts = [{"name": "sweep", "mountPath": FOLDER, "readOnly": True}]
        mounts += [{"name": "shared-memory", "mountPath": "/dev/shm"}]
        volumes: list[dict[str, Any]] = [
            {"name": "sweep", "configMap": {"name": self.name}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ]
        for number, (claim, folder) in enumerate(self.volumes):
            mounts.append({"name": f"volume-{number}", "mountPath": folder})
            volumes.append(
                {"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": claim}}
            )
        container: dict[str, Any] = {
            "name": name,
            "image": self.image,
            "env": [{"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}],
            "resources": {"requests": dict(resources), "limits": dict(resources)},
            "volumeMounts": mounts,
        }
        if self.secrets:
            container["envFrom"] = [{"secretRef": {"name": name}} for name in self.secrets]
        return {
            "metadata": {"labels": dict(_LABELS)},
            "spec": {
                "terminationGracePeriodSeconds": _GRACE_SECONDS,
                "containers": [container],
                "volumes": volumes,
            },
        }
