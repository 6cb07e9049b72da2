"""Two objectives at once: error, and size."""

import optuna
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier


def objective(trial):
    x, y = load_wine(return_X_y=True)
    max_depth = trial.suggest_int("max_depth", 1, 10)
    min_samples = trial.suggest_int("min_samples_leaf", 1, 30)
    tree = DecisionTreeClassifier(max_depth=max_depth, min_samples_leaf=min_samples, random_state=0)
    error = 1 - cross_val_score(tree, x, y, cv=3).mean()
    return error, tree.fit(x, y).tree_.node_count


if __name__ == "__main__":
    study = optuna.create_study(directions=["minimize", "minimize"])
    study.optimize(objective, n_trials=40)
    print(study.best_trials)
