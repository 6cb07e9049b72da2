"""scikit-learn's network with a width for each layer."""

import warnings

import optuna
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

warnings.filterwarnings("ignore")


def objective(trial):
    x, y = load_wine(return_X_y=True)
    layers = []
    for i in range(trial.suggest_int("n_layers", 1, 4)):
        layers.append(trial.suggest_int(f"n_units_l{i}", 1, 64, log=True))
    rate = trial.suggest_float("learning_rate_init", 1e-4, 1e-1, log=True)
    model = MLPClassifier(tuple(layers), learning_rate_init=rate, max_iter=15, random_state=0)
    return cross_val_score(make_pipeline(StandardScaler(), model), x, y, cv=3).mean()


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=30)
