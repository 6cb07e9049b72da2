"""Actions before a sweep, those that run one, and those that train its best trials again."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .action import Action, Argument
from .arguments import (
    ARTIFACTS,
    DISPATCHER,
    JSON,
    OBJECTIVE,
    RAY_ADDRESS,
    SHELL,
    STORE,
    SWEEP,
    TIME_TEXT,
    TRIAL_OR_BEST,
    TRIALS_TEXT,
    output,
)
from .headings import EVERY_DAY, PREPARE, TAKE_OUT

_PROGRAM: Final = "automl.cli.program.ProgramVerb"
_TRAINED: Final = (OBJECTIVE, SHELL, ARTIFACTS, DISPATCHER, RAY_ADDRESS)
_JOB: Final = (
    Argument("config", metavar="CONFIG", required=True),
    Argument("overrides", metavar="[KEY=VALUE]...", many=True),
    Argument("name", str, "Name of the sweep.  [default: the configuration's]", "--name", "NAME"),
    TRIALS_TEXT,
    TIME_TEXT,
    Argument("seed", str, "Seed of all random choices.", "--seed", "N"),
    replace(
        STORE,
        help="Folder or database URL of the sweeps; the job must see it.  [default: .automl]",
        default=None,
    ),
    OBJECTIVE,
    SHELL,
    Argument("dry_run", bool, "Print the job and submit nothing.", "--dry-run", default=False),
    JSON,
)


def _count(name: str, help: str = "", default: int | None = 0, min: int = 0) -> Argument:
    return Argument(name, int, help, f"--{name.replace('_', '-')}", "N", default, min=min)


def _text(name: str, help: str = "", metavar: str = "NAME", default: str = "") -> Argument:
    return Argument(name, str, help, f"--{name.replace('_', '-')}", metavar, default)


def _path(name: str, help: str, flag: str = "", *, required: bool = False) -> Argument:
    return Argument(name, "path", help, flag or f"--{name.replace('_', '-')}", required=required)


RUNNING: Final = (
    Action("init", EVERY_DAY, "Write a first configuration.", run="automl.cli.init.command"),
    Action("sweep", EVERY_DAY, "Run a sweep.", run="automl.cli.sweep.command"),
    Action(
        "launch",
        PREPARE,
        "Run a sweep as a job of Slurm or Kubernetes.",
        """Run a sweep as a job of Slurm or Kubernetes.

        The job starts Ray on its nodes and runs the sweep. If the store has a sweep of that name,
        the job goes on with it: a job that was interrupted continues when it runs again.""",
        (
            "automl launch slurm configs/nmt.yaml --nodes 4 --gpus-per-node 8 --time 8:00:00",
            "automl launch kuberay mine.yaml --image me/automl --store postgresql://automl@db/automl",
        ),
    ),
    Action(
        "launch slurm",
        PREPARE,
        "Submit a batch job of Slurm.",
        """Submit a batch job that starts Ray on its nodes and runs the sweep there.

        Ray's head and the controller run on the first node; all nodes run trials. Before its time
        limit the job saves its trials, requeues itself and goes on, until the sweep is finished.
        The current folder and the store must be on a disk that all nodes share, or the store be a
        database.""",
        (
            "automl launch slurm configs/nmt.yaml --nodes 4 --gpus-per-node 8 --time 8:00:00",
            "automl launch slurm configs/nmt.yaml --nodes 2 --time 2-0 --dry-run",
            "automl launch slurm mine.yaml --objective train.py:objective -- "
            "--constraint=h100 --mem=0",
            "automl launch slurm mine.yaml --time 4:00:00 -- --qos=low -- "
            "python train.py --lr={lr}",
        ),
        (
            *_JOB,
            _count("nodes", default=1, min=1),
            _count("gpus_per_node"),
            _count("cpus_per_node", "Cores of each node.  [default: whole nodes]", None, 1),
            _text(
                "time",
                "Limit of one run of the job, as sbatch takes it: 8:00:00 or 2-12 (days and "
                "hours).",
                "TIME",
            ),
            _text("partition"),
            _text("account"),
            Argument(
                "grace",
                int,
                "Time before the limit at which trials are saved and the job is requeued.",
                "--grace",
                "SECONDS",
                180,
                min=30,
            ),
            _count("requeues", "How often the job requeues itself at its time limit.", 50),
            _text("interface", "Network for Ray, such as ib0."),
            Argument(
                "setup",
                help="Line of bash that runs first, such as 'module load cuda'; may be repeated.",
                flag="--setup",
                metavar="LINE",
                many=True,
            ),
        ),
        "automl.cli.launch.slurm",
        parser="automl.cli.launch.SlurmVerb",
    ),
    Action(
        "launch kuberay",
        PREPARE,
        "Submit a RayJob of Kubernetes.",
        """Submit a RayJob: KubeRay makes a Ray cluster, runs the sweep there and removes it.

        The head runs the controller, the worker pods run trials. The configuration and the file of
        the objective are sent along; all else that trials need is in the image (see
        examples/cluster/Dockerfile) or on a volume. If the cluster is lost, KubeRay makes it again
        and the sweep continues, so the store must outlive its pods. It needs KubeRay 1.5 or later.
        """,
        (
            "automl launch kuberay mine.yaml --image me/automl --objective train.py:objective \\\n"
            "    --workers 4 --gpus-per-worker 8 --volume runs:/runs --store /runs",
            "automl launch kuberay configs/nmt.yaml data.dir=/data --image me/automl "
            "--volume data:/data \\\n"
            "    --store postgresql://automl@db/automl --secret db-password --dry-run",
        ),
        (
            *_JOB,
            replace(_text("image", "Image with automl installed.", "IMAGE"), required=True),
            _count("workers", "Pods that run trials.", 1, 1),
            _count("max_workers", "Most pods that Ray's autoscaler may start."),
            _count("gpus_per_worker"),
            _text("cpus_per_worker", metavar="CPUS", default="4"),
            _text("memory_per_worker", metavar="MEMORY", default="16Gi"),
            _text("namespace"),
            Argument(
                "volumes",
                help="PersistentVolumeClaim that all pods see at FOLDER; may be repeated.",
                flag="--volume",
                metavar="CLAIM:/FOLDER",
                many=True,
            ),
            Argument(
                "secrets",
                help="Secret whose keys become environment variables, such as PGPASSWORD; may be "
                "repeated.",
                flag="--secret",
                metavar="NAME",
                many=True,
            ),
            _count("retries", "How often a lost cluster is made again; the sweep then goes on.", 5),
        ),
        "automl.cli.launch.kuberay",
        parser=_PROGRAM,
    ),
    Action(
        "confirm",
        TAKE_OUT,
        "Train the best again: is their lead more than noise?",
        """Train the best configurations again with other seeds, to see whether the lead is noise.

        The runs are kept as the sweep SWEEP.confirm. `best` and `report` then show the result. If
        you run it again, only missing runs are trained.""",
        (
            "automl confirm nmt",
            "automl confirm nmt --seeds 5 --top 2",
            "automl confirm mine -- python train.py --lr={lr}",
        ),
        (
            SWEEP,
            STORE,
            Argument("seeds", int, "Runs of each configuration.", "--seeds", default=3, min=2),
            Argument("top", int, "Number of configurations.", "--top", default=3, min=2),
            JSON,
            *_TRAINED,
        ),
        "automl.cli.training_again.confirm",
        parser=_PROGRAM,
    ),
    Action(
        "fit",
        TAKE_OUT,
        "Train the best configuration on all data, and export it.",
        """Train the best configuration to its full length on all data, and export it.

        The data are those for training and for validation.

        It runs as the sweep SWEEP.fit. Its validation metrics mean nothing, because it has trained
        on that data.""",
        (
            "automl fit nmt",
            "automl fit nmt --train-time 10m -o models/nmt",
            "automl fit mine -- python train.py --lr={lr}",
        ),
        (
            SWEEP,
            STORE,
            output("SWEEP-fit"),
            TRIAL_OR_BEST,
            Argument(
                "train_time",
                "duration",
                "Training time.  [default: as the trials of the sweep]",
                "--train-time",
                "TIME",
            ),
            *_TRAINED,
        ),
        "automl.cli.training_again.fit",
        parser=_PROGRAM,
    ),
    Action(
        "space",
        PREPARE,
        "Show the search space on this hardware.",
        run="automl.cli.space.command",
    ),
    Action(
        "workloads",
        PREPARE,
        "List the workloads.",
        "List the workloads with their goals.",
        ("automl workloads",),
        (JSON,),
        "automl.cli.machine.workloads",
    ),
    Action(
        "data",
        PREPARE,
        "List, fetch and prepare data sets.",
        "List, fetch and prepare data sets.",
        ("automl data list", "automl data fetch imdb"),
    ),
    Action(
        "data list",
        PREPARE,
        "List the data sets that can be fetched.",
        "List the data sets that can be fetched, and the settings to use them.",
        ("automl data list --json",),
        (JSON,),
        "automl.cli.machine.list_data",
    ),
    Action(
        "data fetch",
        PREPARE,
        "Fetch a data set from its official source.",
        "Fetch a data set from its official source, check its checksum, resume broken transfers.",
        (
            "automl data fetch imdb",
            "automl sweep configs/sentiment.yaml data.name=imdb data.dir=data/imdb",
        ),
        (
            Argument("name", metavar="NAME", required=True),
            _path("folder", "Folder to write.  [default: data/NAME]", "--dir"),
            JSON,
        ),
        "automl.cli.machine.fetch_data",
    ),
    Action(
        "data prepare",
        PREPARE,
        "Encode a parallel corpus of any size on disk.",
        """Encode a parallel corpus into shards on disk, which training reads one by one.

        Pairs with an empty side or with more than --max-length tokens are skipped and counted.""",
        (
            "automl data prepare --source corpus.en.gz --target corpus.de.gz --dir data/corpus",
            "automl data prepare --from data/texts --pair en-de --pair de-en --dir data/both",
            "automl sweep configs/nmt.yaml data.name=prepared data.dir=data/corpus",
        ),
        (
            _path("source", "Text file with one sentence in each line, plain or .gz."),
            _path("target", "Translations of --source, line by line."),
            _path("valid_source", "Sentences of the validation split."),
            _path("valid_target", "Translations of --valid-source."),
            _path(
                "texts",
                "Folder with train.LANGUAGE and valid.LANGUAGE of the languages of --pair.",
                "--from",
            ),
            Argument(
                "pairs",
                help="Language pair such as en-de, with --from; may be repeated for one model of "
                "several.",
                flag="--pair",
                many=True,
            ),
            _path("folder", "New folder.", "--dir", required=True),
            Argument(
                "vocabulary_size",
                int,
                "Size of the vocabulary that both languages share.",
                "--vocabulary-size",
                default=8000,
            ),
            Argument(
                "kind", ("bpe", "unigram", "word"), "Kind of tokens.", "--kind", default="bpe"
            ),
            Argument(
                "max_length",
                int,
                "Longest sentence in tokens; longer ones are skipped.",
                "--max-length",
                default=128,
            ),
            Argument(
                "sample",
                int,
                "Number of pairs from which the vocabulary is learned.",
                "--sample",
                default=500_000,
            ),
            Argument(
                "shard_pairs",
                int,
                "Number of pairs in each shard.",
                "--shard-pairs",
                default=200_000,
            ),
            Argument(
                "seed", int, "Seed of the sample and of the order of pairs.", "--seed", default=0
            ),
            JSON,
        ),
        "automl.cli.machine.prepare_data",
    ),
    Action(
        "doctor",
        PREPARE,
        "Show what this machine can run.",
        "Show hardware, packages and backends, and what precisions and strategies need.",
        ("automl doctor",),
        (replace(STORE, help="Store to check for writing."), JSON),
        "automl.cli.machine.doctor",
    ),
)
