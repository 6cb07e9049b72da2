"""`automl sweep CONFIG`: run a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from automl.errors import UsageError

from .common import emit, json_option, refuse_password
from .objective import load_objective, objective_option
from .running import ray_options, run_sweep

if TYPE_CHECKING:
    from automl.config import Config
    from automl.ledger import Ledger

# Option to the key of the configuration that it sets.
KEYS = {
    "name": "name",
    "trials": "budget.trials",
    "budget": "budget.time",
    "workers": "workers",
    "seed": "seed",
    "store": "store",
}


@click.command("sweep", short_help="Run a sweep.")
@click.argument("config", type=click.Path())
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--name", metavar="NAME", help="Name of the sweep; refused where it is in use.")
@click.option("--trials", metavar="N", help="End after so many trials, failures counted in.")
@click.option("--budget", metavar="TIME", help="End after so much time, such as 10m or 1h30m.")
@click.option("--workers", metavar="N", help="Trials that run at the same time.")
@click.option("--seed", metavar="N", help="Seed of everything random.")
@click.option(
    "--store", metavar="URL", help="Folder or database URL of the sweeps.  [default: .automl]"
)
@click.option(
    "--prior",
    "priors",
    multiple=True,
    metavar="SOURCE",
    help="Trials that are known: FILE.csv, optuna:URL#STUDY or sweep:NAME; may be given several times.",
)
@click.option(
    "--transfer",
    metavar="SWEEP",
    help="An earlier sweep of something alike, on other data or hardware: begin with what was good there.",
)
@click.option(
    "--dry-run", is_flag=True, help="Check everything, show what would run, create nothing."
)
@json_option
@objective_option
@ray_options
@click.pass_context
def command(ctx: click.Context, /, config: str, overrides: tuple[str, ...], **options: Any) -> None:
    """Tune what a configuration describes: propose configurations, train them, learn, and repeat.

    KEY=VALUE sets a value of the configuration by its dotted key. Ctrl-C interrupts the sweep so that
    `automl resume` can go on with it.

    \b
    Examples:
      automl sweep configs/nmt.yaml
      automl sweep configs/nmt.yaml data.name=multi30k data.dir=data --trials 20
      automl sweep configs/nmt.yaml space.precision=[fp32,bf16] --name precision --budget 10m
      automl sweep mine.yaml --objective train.py:objective
      automl sweep mine.yaml --objective train.py:objective --prior old.csv --prior optuna:sqlite:///old.db#study
      automl sweep configs/nmt.yaml beliefs.learning_rate=2e-3 beliefs.precision=bf16
      automl sweep configs/nmt.yaml data.name=multi30k data.dir=data --transfer nmt
    """
    loaded = _load(config, overrides, options)
    objective = load_objective(options["objective"]) if options["objective"] else None
    if options["dry_run"]:
        emit(loaded.spec.to_dict()) if options["as_json"] else _show(loaded)
        return
    from automl.core.environment import describe
    from automl.ledger import Ledger

    ledger = Ledger.open(loaded.store, create=True)
    try:
        name = ledger.create_sweep(loaded.spec, describe(), rename=options["name"] is None)
        if name != loaded.spec.name:
            click.echo(f"{loaded.spec.name} is in use: this sweep is {name}", err=True)
        known = _add_priors(ledger, name, options["priors"])
        if options["transfer"]:
            _transfer(ledger, name, options["transfer"])
            known += 1
        where = {key: options[key] for key in ("dispatcher", "ray_address", "as_json")}
        status = run_sweep(
            ledger.spec(name), ledger, loaded.store, objective=objective, resume=known > 0, **where
        )
    finally:
        ledger.close()
    ctx.exit(status)


def _transfer(ledger: Ledger, name: str, earlier: str) -> None:
    """Begin with what an earlier sweep has learned."""
    from automl.workflows.transfer import transfer

    try:
        spec = transfer(ledger, name, earlier)
    except Exception:
        ledger.delete(name)  # nothing has run: a sweep that cannot begin as asked is none
        raise
    click.echo(
        f"begins with the best of {earlier}, and believes in values near theirs: {', '.join(spec.beliefs)}",
        err=True,
    )


def _add_priors(ledger: Ledger, name: str, sources: tuple[str, ...]) -> int:
    """Add what is known from elsewhere; how many trials that is. They count among the sweep's trials."""
    from dataclasses import replace

    from automl.workflows import import_trials as prior

    spec, total = ledger.spec(name), 0
    try:
        for source in sources:
            found = prior.read(source, spec.space, spec.goals, ledger)
            total += prior.add(ledger, name, found.trials)
            click.echo(f"{source}: {found}", err=True)
    except Exception:
        ledger.delete(name)  # nothing has run: a sweep that cannot begin as asked is none
        raise
    if total and spec.budget.trials is not None:
        budget = replace(spec.budget, trials=spec.budget.trials + total)
        ledger.replace_spec(name, replace(spec, budget=budget))
    return total


def _load(config: str, overrides: tuple[str, ...], options: dict[str, Any]) -> Config:
    """The configuration, with everything checked that can be checked before something is created."""
    from automl.config import Override, load
    from automl.control.preflight import check_store, existing_sweeps

    given = [
        Override(key, options[name], f"--{name}")
        for name, key in KEYS.items()
        if options[name] is not None
    ]
    loaded = load(config, [*overrides, *given], objective=options["objective"] is not None)
    refuse_password(loaded.store)
    check_store(loaded.store)
    if options["name"] is not None and loaded.spec.name in existing_sweeps(loaded.store):
        raise UsageError(
            f"--name: there is a sweep named {loaded.spec.name!r} already; choose another name, "
            f"or go on with it: automl resume {loaded.spec.name}"
        )
    return loaded


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
    click.echo(
        f"\nsweep {spec.name} of {spec.workload or 'an objective'}: {'; '.join(map(str, spec.goals))}"
    )
    click.echo(
        f"budget: {budget or 'none, it runs until Ctrl-C'}; suggester {spec.suggester}; store {config.store}"
    )
    for name, belief in UserPrior(spec.space, spec.beliefs).by_name.items():
        click.echo(f"believed: {name} {belief}")
    click.echo("everything checked; nothing was created")
