import optuna

from benchmarks.comparison.tasks import EPOCHS, train_network


def objective(trial):
    params = {
        "lr": trial.suggest_float("lr", 1e-3, 1.0, log=True),
        "momentum": trial.suggest_float("momentum", 0.0, 0.99),
        "width": trial.suggest_int("width", 4, 128, log=True),
        "depth": trial.suggest_int("depth", 1, 4),
        "activation": trial.suggest_categorical("activation", ["relu", "tanh"]),
    }
    for epoch, error in train_network(params):
        trial.report(error, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return error


def search(seed, trials=30):
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.HyperbandPruner(max_resource=EPOCHS),
    )
    study.optimize(objective, n_trials=trials)
    return study.best_value, study.best_params
