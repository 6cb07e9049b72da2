"""`automl launch kuberay CONFIG`: run a sweep as a RayJob of Kubernetes."""

from __future__ import annotations

from typing import Any

import click

from ..common import emit, say
from ..program import Program, ProgramVerb
from .options import checked_sweep, sweep_options


@click.command("kuberay", cls=ProgramVerb, short_help="Submit a RayJob of Kubernetes.")
@sweep_options
@click.option("--image", required=True, metavar="IMAGE", help="Image with automl installed.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Pods that run trials.",
)
@click.option(
    "--max-workers",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Most pods that Ray's autoscaler may start.",
)
@click.option(
    "--gpus-per-worker", type=click.IntRange(0), default=0, metavar="N", help="[default: none]"
)
@click.option("--cpus-per-worker", default="4", show_default=True, metavar="CPUS")
@click.option("--memory-per-worker", default="16Gi", show_default=True, metavar="MEMORY")
@click.option("--namespace", metavar="NAME", default="")
@click.option(
    "--volume",
    "volumes",
    multiple=True,
    metavar="CLAIM:/FOLDER",
    help="PersistentVolumeClaim that all pods see at FOLDER; may be repeated.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME",
    help="Secret whose keys become environment variables, such as PGPASSWORD; may be repeated.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    metavar="N",
    help="How often a lost cluster is made again; the sweep then goes on.",
)
def kuberay(
    config: str,
    overrides: tuple[str, ...],
    program: Program | None,
    dry_run: bool,
    as_json: bool,
    image: str,
    workers: int,
    max_workers: int,
    gpus_per_worker: int,
    cpus_per_worker: str,
    memory_per_worker: str,
    namespace: str,
    volumes: tuple[str, ...],
    secrets: tuple[str, ...],
    retries: int,
    **options: Any,
) -> None:
    """Submit a RayJob: KubeRay makes a Ray cluster, runs the sweep there and removes the cluster.

    The head runs the controller, the worker pods run trials. The configuration and the file of the
    objective are sent along; all else that trials need is in the image (see
    examples/cluster/Dockerfile) or on a volume. If the cluster is lost, KubeRay makes it again and
    the sweep continues, so the store must outlive its pods. It needs KubeRay 1.5 or later.

    \b
    Examples:
      automl launch kuberay mine.yaml --image me/automl --objective train.py:objective \\
        --workers 4 --gpus-per-worker 8 --volume runs:/runs --store /runs
      automl launch kuberay configs/nmt.yaml data.dir=/data --image me/automl --volume data:/data \\
        --store postgresql://automl@db/automl --secret db-password --dry-run
    """
    from automl.launch.kuberay import KubeRayJob, read_volume

    sweep = checked_sweep(config, overrides, program, options)
    job = KubeRayJob(
        sweep,
        image,
        workers,
        max_workers,
        gpus_per_worker,
        cpus_per_worker,
        memory_per_worker,
        namespace,
        tuple(read_volume(text) for text in volumes),
        secrets,
        retries,
    )
    if dry_run:
        emit(job.manifest()) if as_json else say(job.text())
        return
    job.apply()
    if as_json:
        emit({"sweep": sweep.name, "store": sweep.store, "job": job.name})
    else:
        say(f"the RayJob {job.name} runs the sweep {sweep.name}; see kubectl get rayjob {job.name}")
