"""Our suggester as an Optuna sampler."""

import math

import optuna

import automl


def tree(trial: optuna.Trial) -> float:
    optimizer = trial.suggest_categorical("optimizer", ["sgd", None])
    loss = (math.log10(trial.suggest_float("learning rate!", 1e-5, 1.0, log=True)) + 2) ** 2
    if optimizer == "sgd":
        loss += (trial.suggest_float("momentum", 0.0, 0.95, step=0.05) - 0.6) ** 2
        if trial.suggest_categorical("nesterov", [True, False]):
            loss += 0.1 * trial.suggest_int("variant", 2, 20, step=3)
        return loss
    return loss + 1 + abs(trial.suggest_int("depth", 1, 8) - 3)


def study_of(
    objective: object, num_trials: int, seed: int = 0, suggester: str = "bayes", **options: object
) -> optuna.Study:
    sampler = automl.BayesSampler(seed=seed, suggester=suggester)
    study = optuna.create_study(sampler=sampler, **options)  # type: ignore[arg-type]
    study.optimize(objective, n_trials=num_trials, catch=(RuntimeError,))  # type: ignore[arg-type]
    return study


def test_finds_the_branch_and_its_values() -> None:
    study = study_of(tree, 30)
    assert study.best_value < 0.3, study.best_params
    assert study.best_params["optimizer"] == "sgd"


def test_same_seed_same_trials() -> None:
    first, second, other = (study_of(tree, 14, seed, "tpe") for seed in (1, 1, 2))
    assert [t.params for t in first.trials] == [t.params for t in second.trials]
    assert [t.params for t in first.trials] != [t.params for t in other.trials]


def test_maximize_failures_and_pruning() -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        if x > 0.7:
            raise RuntimeError("out of memory")
        trial.report(x, 1)
        if x < 0.2:
            raise optuna.TrialPruned
        return 1 - (x - 0.55) ** 2

    study = study_of(objective, 25, direction="maximize")
    assert study.best_value > 0.999
    late = study.trials[10:]
    assert sum(t.state == optuna.trial.TrialState.FAIL for t in late) <= len(late) // 2


def test_constraints_are_heeded() -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        trial.set_constraint("too large", x - 0.5)
        return -x

    study = study_of(objective, 50, suggester="tpe")
    late = [trial.params["x"] for trial in study.trials[20:]]
    assert sum(x <= 0.5 for x in late) > 15
    assert max(x for x in late if x <= 0.5) > 0.4
