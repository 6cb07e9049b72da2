"""A network of PyTorch with a width and a dropout for each layer."""

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn

X, Y = load_digits(return_X_y=True)
X, Y = torch.tensor(X / 16, dtype=torch.float32), torch.tensor(Y)


def define_model(trial):
    n_layers = trial.suggest_int("n_layers", 1, 3)
    layers, in_features = [], 64
    for i in range(n_layers):
        out_features = trial.suggest_int(f"n_units_l{i}", 4, 128)
        layers += [nn.Linear(in_features, out_features), nn.ReLU()]
        layers.append(nn.Dropout(trial.suggest_float(f"dropout_l{i}", 0.2, 0.5)))
        in_features = out_features
    return nn.Sequential(*layers, nn.Linear(in_features, 10))


def objective(trial):
    torch.manual_seed(0)
    model = define_model(trial)
    optimizer_name = trial.suggest_categorical("optimizer", ["Adam", "RMSprop", "SGD"])
    lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    optimizer = getattr(torch.optim, optimizer_name)(model.parameters(), lr=lr)
    accuracy = 0.0
    for epoch in range(5):
        model.train()
        for i in range(0, 1200, 100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X[i : i + 100]), Y[i : i + 100]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(X[1200:]).argmax(1) == Y[1200:]).float().mean().item()
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.exceptions.TrialPruned()
    return accuracy


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=100, timeout=600)
