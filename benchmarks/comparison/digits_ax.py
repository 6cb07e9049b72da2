from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from benchmarks.comparison.tasks import classify_digits

PARAMETERS = [
    RangeParameterConfig("C", (1e-2, 1e3), "float", scaling="log"),
    RangeParameterConfig("gamma", (1e-4, 1e1), "float", scaling="log"),
    ChoiceParameterConfig(
        "kernel",
        ["rbf", "poly", "sigmoid"],
        "str",
        dependent_parameters={"poly": ["degree"]},
    ),
    RangeParameterConfig("degree", (2, 5), "int"),
    ChoiceParameterConfig("scaler", ["none", "standard", "minmax"], "str"),
    RangeParameterConfig("directions", (8, 64), "int"),
]


def search(seed, trials=30):
    client = Client(random_seed=seed)
    client.configure_experiment(PARAMETERS)
    client.configure_optimization("-error")
    for _ in range(trials):
        for index, params in client.get_next_trials(max_trials=1).items():
            client.complete_trial(index, {"error": classify_digits(params)})
    params, metrics, _, _ = client.get_best_parameterization()
    return metrics["error"][0], params
