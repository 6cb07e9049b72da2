"""Constraints, and a study that the file itself runs."""

import math

import optuna


def objective(trial):
    x = trial.suggest_float("x", -15, 30)
    y = trial.suggest_float("y", -15, 30)
    kind = trial.suggest_categorical("kind", ["round", "wavy"])
    trial.set_user_attr("constraint", (x - 5) ** 2 + y**2 - 25)
    value = (4 * x**2 + 4 * y**2) / 10 + (x - 5) ** 2 + (y - 5) ** 2
    if kind == "wavy":
        frequency = trial.suggest_int("frequency", 1, 9)
        value += 20 * math.sin(frequency * x) - 5
    return value


def constraints(trial):
    return (trial.user_attrs["constraint"],)


if __name__ == "__main__":
    sampler = optuna.samplers.TPESampler(constraints_func=constraints, seed=1)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    study.enqueue_trial({"x": 0.0, "y": 0.0, "kind": "round"})
    study.optimize(objective, n_trials=60, show_progress_bar=False)
    print("Number of finished trials:", len(study.trials))
