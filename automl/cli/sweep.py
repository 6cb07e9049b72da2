"""`automl sweep CONFIG`: run a sweep."""

from __future__ import annotations

import shlex
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from automl.errors import UsageError

from .common import (
    STORE,
    emit,
    given_settings,
    json_option,
    objective_option,
    ray_options,
    say,
    setting_options,
)
from .live import live_options
from .program import Program, ProgramVerb, load_trained, shell_option
from .running import run_sweep, wait_for_lost_controller

if TYPE_CHECKING:
    from automl.config import Config
    from search_spaces.hardware import Hardware

RUN_OPTIONS = ("dispatcher", "ray_address", "as_json", "log_json", "metrics")


@click.command("sweep", cls=ProgramVerb, short_help="Run a sweep.")
@click.argument("config", type=click.Path())
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--name", metavar="NAME", help="Name of the sweep; refused if it is in use.")
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the sweep of that name if it exists, for jobs that are started again.",
)
@setting_options("trials", "budget", "workers", "seed", "store", "artifacts")
@click.option(
    "--prior",
    "sources",
    multiple=True,
    metavar="SOURCE",
    help="Import trials from FILE.csv, optuna:URL#STUDY or sweep:NAME; may be repeated.",
)
@click.option(
    "--transfer",
    metavar="SWEEP",
    help="Start from the best of an earlier sweep on other data or hardware.",
)
@click.option(
    "--dry-run", is_flag=True, help="Check everything, show what would run, create nothing."
)
@click.option(
    "--create", is_flag=True, help="Create the sweep for agents (`automl ask`), run nothing."
)
@json_option
@objective_option
@shell_option
@click.option(
    "--report",
    "patterns",
    multiple=True,
    metavar="NAME=REGEX",
    help="How a command prints a metric, such as loss='loss (\\S+)'; may be repeated.",
)
@ray_options
@live_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    config: str,
    overrides: tuple[str, ...],
    sources: tuple[str, ...],
    patterns: tuple[str, ...],
    program: Program | None,
    **options: Any,
) -> None:
    """Tune what a configuration describes: propose configurations, train them, learn, and repeat.

    KEY=VALUE sets a value of the configuration by its dotted key. Ctrl-C interrupts the sweep;
    `automl resume` continues it. A COMMAND is run by each trial: {NAME} becomes the value of a
    parameter, {params} all of them as --NAME=VALUE.

    \b
    Examples:
      automl sweep configs/nmt.yaml
      automl sweep configs/nmt.yaml data.name=multi30k data.dir=data --trials 20
      automl sweep configs/nmt.yaml space.precision=[fp32,bf16] --name precision --budget 10m
      automl sweep mine.yaml --objective train.py:objective
      automl sweep mine.yaml --objective train.py:objective --prior old.csv
      automl sweep mine.yaml -- python train.py --lr={lr} --batch-size={batch_size}
      automl sweep mine.yaml --report loss='val_loss (\\S+)' -- ./train {params}
      automl sweep configs/nmt.yaml beliefs.learning_rate=2e-3 beliefs.precision=bf16
      automl sweep configs/nmt.yaml data.name=multi30k data.dir=data --transfer nmt
      automl sweep mine.yaml --create            for agents, see automl ask --help
    """
    loaded = _load(config, overrides, patterns, program, options)
    objective = load_trained(loaded.spec, options["objective"], program)
    for note in loaded.notes:
        say(note, err=True)
    if options["resume"] and not options["dry_run"] and _exists(loaded):
        ctx.exit(_continue(loaded, program, options))
    if options["dry_run"]:
        emit(loaded.spec.to_dict()) if options["as_json"] else _show(loaded)
        return
    from automl.ledger import Ledger
    from automl.workflows.beginning import Beginning, begin

    earlier = Beginning((*loaded.prior, *sources), transfer=options["transfer"])
    with closing(Ledger.open(loaded.store, create=True)) as ledger:
        spec = begin(
            ledger,
            loaded.spec,
            earlier,
            rename=options["name"] is None,
            tell=lambda text, _: say(text, err=True),
        )
        name = spec.name
        if name != loaded.spec.name:
            say(f"{loaded.spec.name} is in use: this sweep is {name}", err=True)
        if options["create"]:
            location = "" if loaded.store == STORE else f" --store {shlex.quote(loaded.store)}"
            if options["as_json"]:
                emit({"sweep": name, "store": loaded.store})
            else:
                say(f"{name} is ready for agents: automl ask {name}{location}")
            return
        run_options = {key: options[key] for key in RUN_OPTIONS}
        status = run_sweep(
            spec.with_location(loaded.spec.artifacts),
            ledger,
            loaded.store,
            objective,
            resume=True,  # it may begin with imported trials
            **run_options,
        )
    ctx.exit(status)


def _exists(loaded: Config) -> bool:
    from automl.control.preflight import existing_sweeps

    return loaded.spec.name in existing_sweeps(loaded.store)


def _continue(loaded: Config, program: Program | None, options: dict[str, Any]) -> int:
    """Do what `automl resume` does, once a controller that was lost counts as dead.

    The sweep keeps its space and its settings. Of the configuration only `artifacts` counts, which
    has to be repeated.
    """
    from .resume import continue_sweep

    name = loaded.spec.name
    wait_for_lost_controller(loaded.store, name)
    given = {key: options[key] for key in ("trials", "budget", "objective", *RUN_OPTIONS)}
    location = loaded.spec.artifacts
    return continue_sweep(name, loaded.store, program=program, artifacts=location, **given)


def _load(
    config: str,
    overrides: tuple[str, ...],
    patterns: tuple[str, ...],
    program: Program | None,
    options: dict[str, Any],
) -> Config:
    """The configuration, after all checks that need nothing to be created."""
    from automl.config import load
    from automl.control.preflight import check_artifacts, check_store
    from automl.dispatch._make import choose_dispatcher
    from automl.ledger.database import refuse_password

    agents = options["create"] or options["dispatcher"] == "agents"  # they know what to train
    own = options["objective"] is not None
    kind, address = choose_dispatcher(options["dispatcher"], options["ray_address"])
    loaded = load(
        config,
        [*overrides, *given_settings(options)],
        nodes=partial(_hardware_of, address) if kind == "ray" and address else None,
        objective=None if agents and not own else own,
        command="" if program is None else str(program),
        reports=_patterns(patterns),
    )
    refuse_password(loaded.store)
    check_store(loaded.store)
    check_artifacts(loaded.spec)
    if options["name"] is not None and not options["resume"] and _exists(loaded):
        raise UsageError(
            f"--name: there is a sweep named {loaded.spec.name!r} already; choose another name, "
            f"or continue it: automl resume {loaded.spec.name}"
        )
    return loaded


def _hardware_of(address: str, accelerator: str) -> Hardware:
    from automl.dispatch.ray.nodes import cluster_hardware

    return cluster_hardware(address, accelerator)


def _patterns(given: tuple[str, ...]) -> dict[str, str]:
    """The values of `--report`."""
    found = {}
    for text in given:
        name, equals, pattern = text.partition("=")
        if not (name and equals and pattern):
            raise UsageError(f"--report is NAME=REGEX, such as loss='loss (\\S+)', got {text!r}")
        found[name] = pattern
    return found


def _show(config: Config) -> None:
    from automl.core.text import duration
    from automl.suggesters.user_prior import UserPrior

    from .space import show_space

    spec = config.spec
    times = ("time", "worker_time")
    limits = {key: value for key, value in vars(spec.budget).items() if value is not None}
    budget = ", ".join(
        f"{key} {duration(v) if key in times else f'{v:g}'}" for key, v in limits.items()
    )
    show_space(config)
    goals = "; ".join(map(str, spec.goals))
    say(f"\nsweep {spec.name} of {spec.trained}: {goals}")
    say(
        f"budget: {budget or 'none, it runs until Ctrl-C'}; "
        f"suggester {spec.suggester}; store {config.store}"
    )
    for name, prior in UserPrior(spec.space, spec.beliefs).by_name.items():
        say(f"prior: {name} {prior}")
    say("everything checked; nothing was created")
