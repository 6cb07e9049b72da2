"""The RayJob of `automl launch kuberay`, held against the schemas of KubeRay and Kubernetes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from automl.cli import cli
from automl.errors import UsageError
from automl.launch.kuberay import KubeRayJob, read_volume, resource_name
from automl.launch.sweep_command import SweepCommand

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0}


def fields(required: str, **properties: Any) -> dict[str, Any]:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


POD = {"type": "object", "required": ["spec"]}  # the schema of Kubernetes has its details
CLUSTER = fields(
    "headGroupSpec workerGroupSpecs",
    authOptions=fields("", mode={"enum": ["disabled", "token"]}),
    enableInTreeAutoscaling={"type": "boolean"},
    autoscalerOptions={"type": "object"},
    rayVersion={"type": "string"},
    headGroupSpec=fields(
        "template",
        rayStartParams=TEXTS,
        serviceType={"type": "string"},
        enableIngress={"type": "boolean"},
        template=POD,
    ),
    workerGroupSpecs={
        "type": "array",
        "items": fields(
            "groupName minReplicas maxReplicas template",
            groupName={"type": "string"},
            replicas=COUNT,
            minReplicas=COUNT,
            maxReplicas=COUNT,
            numOfHosts=COUNT,
            idleTimeoutSeconds=COUNT,
            rayStartParams=TEXTS,
            template=POD,
        ),
    },
)
# The fields of RayJob as KubeRay's API reference lists them for ray.io/v1.
RAY_JOB = fields(
    "apiVersion kind metadata spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=fields("name", name={"type": "string"}, namespace={"type": "string"}, labels=TEXTS),
    spec=fields(
        "entrypoint",
        entrypoint={"type": "string"},
        backoffLimit=COUNT,
        activeDeadlineSeconds=COUNT,
        entrypointNumCpus={"type": "number"},
        entrypointNumGpus={"type": "number"},
        entrypointResources={"type": "string"},
        runtimeEnvYAML={"type": "string"},
        jobId={"type": "string"},
        submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode"]},
        submitterPodTemplate=POD,
        shutdownAfterJobFinishes={"type": "boolean"},
        ttlSecondsAfterFinished=COUNT,
        suspend={"type": "boolean"},
        metadata=TEXTS,
        clusterSelector=TEXTS,
        rayClusterSpec=CLUSTER,
    ),
)
CONFIG = """name: Toy_1.x
space:
  x: {low: -1.0, high: 1.0, default: 0.5}
goals: minimize loss
budget: {trials: 6}
suggester: random
"""
DATABASE = "postgresql://db/runs"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "toy.yaml").write_text(CONFIG)
    (tmp_path / "train.py").write_text("def objective(trial):\n    return {'loss': 1.0}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launched(*arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    command = ["launch", "kuberay", "toy.yaml", "--image", "me/automl", "--dry-run", *arguments]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    config, job = yaml.safe_load_all(done.stdout)
    return config, job


FULL = (
    *("budget.trials=3", "--objective", "train.py", "--workers", "2", "--max-workers", "8"),
    *("--gpus-per-worker", "8", "--cpus-per-worker", "16", "--memory-per-worker", "64Gi"),
    *("--namespace", "team", "--volume", "runs:/runs", "--volume", "data:/data"),
    *("--secret", "keys", "--store", "/runs", "--seed", "3", "--retries", "2"),
)


def test_every_field_is_one_of_kuberay(folder: Path) -> None:
    for arguments in (FULL, ("--objective", "train.py", "--store", "/r", "--volume", "r:/r")):
        _, job = launched(*arguments)
        jsonschema.validate(job, RAY_JOB)


def test_pods_and_the_config_map_are_valid_kubernetes(folder: Path) -> None:
    """Against the schemas of Kubernetes itself, which `make test-all` installs."""
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="install automl-sweep[test-all]"
    )
    config, job = launched(*FULL)
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    pods = [{"apiVersion": "v1", "kind": "Pod", **group["template"]} for group in groups]
    version = kubernetes_validate.latest_version()
    for resource in (config, *pods):
        kubernetes_validate.validate(resource, version, strict=True)


def test_pods_have_what_was_typed(folder: Path) -> None:
    config, job = launched(*FULL)
    assert job["metadata"]["namespace"] == config["metadata"]["namespace"] == "team"
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (2, 2, 8)
    assert job["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] is True
    (container,) = group["template"]["spec"]["containers"]
    assert container["image"] == "me/automl"
    wanted = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"}
    assert container["resources"] == {"requests": wanted, "limits": wanted}
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"] for volume in group["template"]["spec"]["volumes"]}
    assert set(places) == volumes
    assert {"/runs", "/data", "/sweep", "/dev/shm"} == set(places.values())
    assert job["spec"]["backoffLimit"] == 2


def test_the_head_runs_no_trials(folder: Path) -> None:
    _, job = launched(*FULL)
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"


def test_the_entrypoint_runs_what_was_sent_along(folder: Path) -> None:
    config, job = launched(*FULL)
    assert config["data"]["toy.yaml"] == CONFIG
    assert "objective" in config["data"]["train.py"]
    assert shlex.split(job["spec"]["entrypoint"]) == [
        *("automl", "sweep", "/sweep/toy.yaml", "budget.trials=3", "--name=Toy_1.x", "--resume"),
        *("--store=/runs", "--seed=3", "--objective=/sweep/train.py:objective"),
        "--ray-address=auto",
    ]


def test_a_command_is_passed_on(folder: Path) -> None:
    _, job = launched("--store", DATABASE, "--", "python", "a b.py", "--x={x}")
    assert shlex.split(job["spec"]["entrypoint"])[-4:] == ["--", "python", "a b.py", "--x={x}"]


def test_a_store_that_would_be_lost_with_its_pod_is_refused(folder: Path) -> None:
    sweep = SweepCommand("toy.yaml", "toy", ".automl")
    with pytest.raises(UsageError, match=r"'\.automl' would be lost"):
        KubeRayJob(sweep, "me/automl")
    with pytest.raises(UsageError, match="would be lost"):
        KubeRayJob(SweepCommand("c", "toy", "/run"), "i", volumes=(("runs", "/runs"),))


@pytest.mark.parametrize("text", ["runs", "runs:", "runs:/", "runs:runs", "Runs:/runs", ":/runs"])
def test_a_volume_is_a_claim_and_a_folder(text: str) -> None:
    with pytest.raises(UsageError, match="CLAIM:/FOLDER"):
        read_volume(text)


def test_names_are_those_that_kubernetes_allows() -> None:
    assert resource_name("Toy_1.x") == "toy-1-x"
    assert len(resource_name("a" * 64)) <= 40
    with pytest.raises(UsageError, match="has no letter"):
        KubeRayJob(SweepCommand("c", "_", DATABASE), "i")
    with pytest.raises(UsageError, match="--namespace"):
        KubeRayJob(SweepCommand("c", "a", DATABASE), "i", namespace="A_b")


def test_files_that_do_not_fit_are_refused(folder: Path) -> None:
    (folder / "large.yaml").write_text("#" * 1_000_000)
    with pytest.raises(UsageError, match="ConfigMap"):
        KubeRayJob(SweepCommand("large.yaml", "a", DATABASE), "i").manifest()
    with pytest.raises(UsageError, match="cannot be sent"):
        KubeRayJob(SweepCommand("absent.yaml", "a", DATABASE), "i").manifest()


def test_without_kubectl_the_error_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    command = ["launch", "kuberay", "toy.yaml", "--image", "i", "--objective", "train.py"]
    done = CliRunner().invoke(cli, [*command, "--store", DATABASE])
    assert done.exit_code == 2
    assert "kubectl was not found" in done.output
