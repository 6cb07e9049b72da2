"""Optuna's usual first example: a classifier is chosen, and each has parameters of its own."""

import optuna
import sklearn.datasets
import sklearn.ensemble
import sklearn.model_selection
import sklearn.svm


def objective(trial):
    iris = sklearn.datasets.load_iris()
    classifier_name = trial.suggest_categorical("classifier", ["SVC", "RandomForest"])
    if classifier_name == "SVC":
        svc_c = trial.suggest_float("svc_c", 1e-10, 1e10, log=True)
        classifier = sklearn.svm.SVC(C=svc_c, gamma="auto")
    else:
        rf_max_depth = trial.suggest_int("rf_max_depth", 2, 32, log=True)
        classifier = sklearn.ensemble.RandomForestClassifier(
            max_depth=rf_max_depth, n_estimators=10, random_state=0
        )
    return sklearn.model_selection.cross_val_score(classifier, iris.data, iris.target, cv=3).mean()


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=40, n_jobs=2)
    print(study.best_trial)
