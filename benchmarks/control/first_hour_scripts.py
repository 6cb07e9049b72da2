"""The scripts that `benchmarks/first_hour.py` runs in new processes.

Each prints its result as the last line of its output; names in capitals are given by the caller.
"""

from __future__ import annotations

from typing import Final

USES_TORCH: Final = """
import torch

def value(x):
    return float(torch.tensor(x) + 1.0)
"""
NEEDS_NO_TORCH: Final = """
def value(x):
    return x
"""
USES_SKLEARN: Final = """
from sklearn.tree import DecisionTreeRegressor

def value(x):
    return float(DecisionTreeRegressor().fit([[x]], [x]).predict([[x]])[0])
"""
START_OPTUNA: Final = """
import sys, time
import optuna

def objective(trial):
    print("FIRST", time.time(), flush=True) if trial.number == 0 else None
    return value(trial.suggest_float("x", 0.0, 1.0))

optuna.logging.set_verbosity(optuna.logging.WARNING)
optuna.create_study(storage=STORAGE).optimize(objective, n_trials=2, n_jobs=2)
"""
START_AUTOML: Final = """
import sys, time
import automl
from search_spaces import Float, Space

def objective(trial):
    if trial.number == 0:
        with open(MARK, "w") as file:
            file.write(str(time.time()))
    return {"loss": value(trial.params["x"])}

space = Space(Float("x", 0.0, 1.0, default=0.5))
automl.sweep(objective, space, "minimize loss", trials=2, workers=2, dispatcher=DISPATCHER,
             store=STORE)
"""
README: Final = """
import sys, time
import torch

torch.manual_seed(SEED)
x = torch.rand(512, 2) * 6 - 3

def losses(lr, w):
    model = torch.nn.Sequential(torch.nn.Linear(2, w), torch.nn.Tanh(), torch.nn.Linear(w, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for step in range(200):
        loss = ((model(x) - x.sin().prod(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step, loss
"""
README_OPTUNA: Final = """
import optuna

def objective(trial):
    lr = trial.suggest_float("lr", 1e-4, 1.0, log=True)
    w = trial.suggest_int("width", 4, 256, log=True)
    best = float("inf")
    for step, loss in losses(lr, w):
        trial.report(float(loss), step)
        best = min(best, float(loss))
    return best

torch.set_num_threads(1)
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=SEED))
study.optimize(objective, n_trials=20, n_jobs=2)
print(study.best_value)
"""
README_AUTOML: Final = """
import automl
from search_spaces import Float, Int, Space

def train(trial):
    for step, loss in losses(trial.params["lr"], trial.params["width"]):
        trial.report(step, loss=loss)

space = Space(
    Float("lr", 1e-4, 1.0, log=True, default=1e-2),
    Int("width", 4, 256, log=True, default=32),
)
result = automl.sweep(train, space, goals="minimize loss", trials=20, workers=2, seed=SEED,
                      store=STORE, dispatcher="local")
print(result.best.value)
"""
