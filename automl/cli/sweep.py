"""`automl sweep CONFIG`: run a sweep; `automl space CONFIG`: show what it would tune."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from automl.config import Config, Override, load
from automl.control.beginning import (
    check_artifacts,
    check_store,
)
from automl.core import KEYS, PluginChoice
from automl.core.arguments import duration
from automl.core.text import Typed, number, shell_line
from automl.dispatch._make import choose_dispatcher
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.ledger.database import refuse_password
from automl.report.terminal import console, table
from automl.suggesters import SUGGESTERS
from automl.workflows.beginning import begin
from automl.workflows.objective import digests, goes_on, unread, usual_stopper
from search_spaces import Choice, Float, Int
from search_spaces.hardware import Hardware
from search_spaces.parameters import Parameter

from .common import (
    Program,
    ProgramVerb,
    config_arguments,
    dispatching,
    emit,
    given_settings,
    json_option,
    load_trained,
    named,
    objective_option,
    overrides_argument,
    say,
    setting,
    several,
    signed,
)
from .running import continue_sweep, run_sweep, wait_for_lost_controller

RUN_OPTIONS = ("dispatcher", "ray_address", "as_json")


@click.command(cls=ProgramVerb)
@click.argument("config", required=False)
@overrides_argument
@click.option("--name", metavar="NAME", help="Name of the sweep; refused if it is in use.")
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the sweep of that name if it exists, for jobs that are started again.",
)
@several(
    *map(setting, ("goals", "trials", "budget", "workers", "seed", "store", "artifacts")),
    setting("replicates"),
)
@click.option(
    "--dry-run", is_flag=True, help="Check everything, show what would run, create nothing."
)
@click.option(
    "--create", is_flag=True, help="Create the sweep for agents (`automl ask`), run nothing."
)
@json_option
@objective_option
@dispatching()
def sweep(
    config: str | None,
    overrides: tuple[str, ...],
    program: Program | None,
    **options: Any,
) -> int | None:
    """Tune what a configuration describes: propose trials, train them, learn, and repeat.

    KEY=VALUE sets a value of the configuration by its dotted key. Ctrl-C interrupts the sweep;
    `automl resume` continues it. A COMMAND is run by each trial: {NAME} becomes the value of a
    parameter, {params} all of them as --NAME=VALUE.

    \b
    Examples:
      automl sweep configs/nmt.yaml
      automl sweep configs/nmt.yaml data.name=multi30k data.dir=data --trials 20
      automl sweep configs/nmt.yaml space.precision=[fp32,bf16] --name precision --budget 10m
      automl sweep mine.yaml --objective train.py:objective
      automl sweep --objective train.py:objective --goals "minimize loss" --trials 50
      automl sweep mine.yaml --objective train.py:objective prior=old.csv
      automl sweep mine.yaml -- python train.py --lr={lr} --batch-size={batch_size}
      automl sweep mine.yaml reports.loss='val_loss (\\S+)' -- ./train {params}
      automl sweep configs/nmt.yaml prior.learning_rate=2e-3 prior.width=128
      automl sweep configs/nmt.yaml data.name=multi30k data.dir=data prior=like:nmt
      automl sweep mine.yaml --create            for agents, see automl ask --help
    """
    is_typed = options["objective"] is not None or program is not None
    loaded = _load(config, overrides, program, options)
    options |= {"dispatcher": loaded.spec.origin.dispatcher, "ray_address": loaded.ray_address}
    typed = Typed(loaded.store, options["objective"], options["ray_address"])
    options["objective"], program, _ = named(loaded.spec.origin, options["objective"], program)
    objective = load_trained(loaded.spec, options["objective"], program)
    spec = replace(loaded.spec, origin=replace(loaded.spec.origin, code=digests(objective)))
    if "stopper" not in loaded.named:
        spec = replace(spec, stopper=PluginChoice(usual_stopper(objective, spec.goals)))
    if program is None and "resumable" not in loaded.named:
        spec = replace(spec, resumable=goes_on(objective))
    loaded = replace(loaded, spec=spec)
    for note in filter(None, (*loaded.notes, unread(options["objective"], spec.constraints))):
        say(note, err=True)
    name = loaded.spec.name
    if options["resume"] and not options["dry_run"] and name in check_store(loaded.store):
        wait_for_lost_controller(loaded.store, name)
        return continue_sweep(
            name,
            loaded.store,
            program=program,
            artifacts=loaded.spec.artifacts,
            moved=True,
            wanted=loaded.spec,
            **{key: options[key] for key in ("trials", "budget", "objective", *RUN_OPTIONS)},
        )
    if options["dry_run"]:
        emit(loaded.spec.to_dict()) if options["as_json"] else _show(loaded)
        return None
    if spec.suggester.name != KEYS["suggester"].default:
        spec.suggester.kind(SUGGESTERS)  # its package may not be installed
    with closing(Ledger.open(loaded.store, create=True)) as ledger:
        spec = begin(
            ledger,
            signed(loaded.spec, options["objective"], typed=is_typed),
            loaded.prior,
            rename=options["name"] is None,
            tell=lambda text, _: say(text, err=True),
        )
        if spec.name != name:
            say(f"{name} is in use: this sweep is {spec.name}", err=True)
        if options["create"]:
            if options["as_json"]:
                emit({"sweep": spec.name, "store": loaded.store})
            else:
                asks = shell_line(["automl", "ask", spec.name, *typed.location])
                say(f"{spec.name} is ready for agents: {asks}")
            return None
        return run_sweep(
            spec.with_location(loaded.spec.artifacts),
            ledger,
            typed,
            objective,
            resume=True,  # it may begin with imported trials
            **{key: options[key] for key in RUN_OPTIONS},
        )


def _load(
    config: str | None,
    overrides: tuple[str, ...],
    program: Program | None,
    options: dict[str, Any],
) -> Config:
    """The configuration, after all checks that need nothing to be created."""
    if config is None and options["objective"] is None:
        raise UsageError("name a configuration, or a function: --objective FILE:NAME --goals GOAL")
    stem = Path(options["objective"].rpartition(":")[0] or "sweep").stem if config is None else ""
    of_file = [Override("name", stem, "--objective")] if stem else []
    own = options["objective"] is not None
    loaded = load(
        config,
        [*of_file, *overrides, *given_settings(options)],
        nodes=_hardware_of,
        objective=None if options["create"] and not own else own,  # agents know what to train
        command="" if program is None else str(program),
    )
    refuse_password(loaded.store)
    known = check_store(loaded.store)
    check_artifacts(loaded.spec)
    name = loaded.spec.name
    if options["name"] and not options["resume"] and name in known:
        line = Typed(loaded.store, options["objective"], options["ray_address"]).line(loaded.spec)
        raise UsageError(
            f"--name: there is a sweep named {name!r} already; choose another name, "
            f"or continue it: {line}"
        )
    if options["dispatcher"] and not options["ray_address"]:  # it is not the file's then
        loaded = replace(loaded, ray_address=None)
    kind, _ = choose_dispatcher(loaded.dispatcher, loaded.ray_address)
    origin = replace(loaded.spec.origin, dispatcher=kind, folder=str(Path.cwd()))
    return replace(loaded, spec=replace(loaded.spec, origin=origin))


def _hardware_of(address: str) -> Hardware:
    from automl.dispatch.ray.nodes import cluster_hardware  # it imports Ray

    return cluster_hardware(address)


def _show(config: Config) -> None:
    spec = config.spec
    limits = {key: value for key, value in vars(spec.budget).items() if value is not None}
    budget = ", ".join(
        f"{key} {duration(v) if key.endswith('time') else f'{v:g}'}" for key, v in limits.items()
    )
    show_space(config)
    trained = spec.workload or ("a command" if spec.origin.command else "an objective")
    say(f"\nsweep {spec.name} of {trained}: {'; '.join(map(str, spec.goals))}")
    say(
        f"budget: {budget or 'none, it runs until Ctrl-C'}; "
        f"suggester {spec.suggester}; store {config.store}"
    )
    say("checked; nothing was created")


@click.command()
@config_arguments
@json_option
def space(config: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the search space of a configuration, and what this hardware leaves out and why.

    \b
    Examples:
      automl space configs/nmt.yaml
      automl space configs/nmt.yaml space=auto
    """
    loaded = load(config, overrides, objective=None)
    if as_json:
        found = {
            "workload": loaded.spec.workload,
            **loaded.spec.space.to_dict(),
            "default": loaded.spec.space.default(),
            "size": loaded.spec.space.size,
            "fixed": dict(loaded.spec.fixed),
            "dropped": [vars(item) for item in loaded.dropped],
        }
        emit(found)
    else:
        show_space(loaded)


def show_space(config: Config) -> None:
    """Print the space as tables."""
    space, out = config.spec.space, console()
    rows = []
    for p in space.parameters.values():
        when = " and ".join(f"{k} is {' or '.join(map(number, v))}" for k, v in p.when.items())
        default = number(p.default) if p.has_default else "-"
        affects = ", ".join(sorted(p.affects)) if len(p.affects) < 3 else "everything"
        rows.append([p.name, default, affects, _domain(p) + (f"  when {when}" if when else "")])
    out.print(table(["parameter", "default", "affects", "values"], rows))
    for constraint in space.constraints:
        out.print(f"constraint: {constraint}", markup=False)
    endless = any(p.size is None for p in space.parameters.values())
    many = "infinitely many" if endless else "more than 20,000"
    size = many if space.size is None else f"{space.size:,}"
    out.print(f"{len(space.parameters)} parameters, {size} configurations", style="dim")
    if config.spec.fixed:
        fixed = "  ".join(f"{name}={number(value)}" for name, value in config.spec.fixed.items())
        out.print(f"\nnot tuned: {fixed}", markup=False)
    if config.dropped:
        out.print("\nleft out on this hardware:")
        gone = [
            [d.parameter, "-" if d.value is None else str(d.value), d.reason]
            for d in config.dropped
        ]
        out.print(table(["parameter", "value", "reason"], gone))


def _domain(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return ", ".join(number(choice) for choice in parameter.choices)
    assert isinstance(parameter, Float | Int)
    kind = "whole numbers " if isinstance(parameter, Int) else ""
    scale = " on a log scale" if parameter.log else ""
    steps = f" in steps of {number(parameter.step)}" if "step" in parameter.domain() else ""
    return f"{kind}{number(parameter.low)} to {number(parameter.high)}{steps}{scale}"
