"""A scikit-learn model: which classifier of handwritten digits, and how is it set?"""

from __future__ import annotations

import argparse
from typing import Any

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import automl
from automl import Choice, Float, Int, Space

# What belongs to one kind of model exists only where that kind is chosen.
SPACE = Space(
    Choice("model", ["svm", "forest"], default="forest"),
    Float("c", 1e-2, 1e3, log=True, default=1.0, when={"model": "svm"}),
    Float("gamma", 1e-4, 1e-1, log=True, default=1e-2, when={"model": "svm"}),
    Int("trees", 10, 200, log=True, default=50, when={"model": "forest"}),
    Int("max_depth", 2, 20, default=8, when={"model": "forest"}),
)


def objective(trial: Any) -> dict[str, float]:
    """Accuracy in cross-validation."""
    p = trial.params
    if p["model"] == "svm":
        model = make_pipeline(StandardScaler(), SVC(C=p["c"], gamma=p["gamma"]))
    else:
        model = RandomForestClassifier(
            p["trees"], max_depth=p["max_depth"], random_state=trial.seed % 2**31
        )
    features, labels = load_digits(return_X_y=True)
    scores = cross_val_score(model, features[:900], labels[:900], cv=3)
    return {"accuracy": float(scores.mean()), "spread": float(scores.std())}


def main(trials: int = 25, dispatcher: str = "ray") -> automl.Result:
    """Tune it, and show the best five."""
    result = automl.sweep(
        objective,
        SPACE,
        "maximize accuracy",
        trials=trials,
        workers=2,
        dispatcher=dispatcher,
        name="digits",
        resume=True,
    )
    table = result.to_pandas().sort_values("value", ascending=False)
    print(table[["number", "value", "params.model"]].head().to_string(index=False))
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=25)
    main(parser.parse_args().trials)
