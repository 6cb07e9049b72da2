"""A classifier that is fitted in steps, and pruned."""

import optuna
import sklearn.datasets
import sklearn.linear_model
import sklearn.model_selection


def objective(trial):
    x, y = sklearn.datasets.load_digits(return_X_y=True)
    train_x, valid_x, train_y, valid_y = sklearn.model_selection.train_test_split(
        x / 16, y, test_size=0.25, random_state=0
    )
    alpha = trial.suggest_float("alpha", 1e-5, 1e-1, log=True)
    loss = trial.suggest_categorical("loss", ["hinge", "log_loss", "modified_huber"])
    clf = sklearn.linear_model.SGDClassifier(alpha=alpha, loss=loss, random_state=0)
    for step in range(10):
        clf.partial_fit(train_x, train_y, classes=list(range(10)))
        trial.report(1.0 - clf.score(valid_x, valid_y), step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return 1.0 - clf.score(valid_x, valid_y)


if __name__ == "__main__":
    study = optuna.create_study(pruner=optuna.pruners.MedianPruner())
    study.optimize(objective, n_trials=40)
