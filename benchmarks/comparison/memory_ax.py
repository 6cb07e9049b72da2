from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from benchmarks.comparison.tasks import fit_features

PARAMETERS = [
    RangeParameterConfig("features", (16, 8192), "int", scaling="log"),
    RangeParameterConfig("block", (16, 1024), "int", scaling="log"),
    ChoiceParameterConfig("dtype", ["float32", "float64"], "str"),
    RangeParameterConfig("gamma", (1e-2, 1e1), "float", scaling="log"),
    RangeParameterConfig("ridge", (1e-6, 1e2), "float", scaling="log"),
]


def search(seed, trials=30):
    client = Client(random_seed=seed)
    client.configure_experiment(PARAMETERS)
    client.configure_optimization("-error")
    for _ in range(trials):
        for index, params in client.get_next_trials(max_trials=1).items():
            try:
                client.complete_trial(index, {"error": fit_features(params)})
            except MemoryError:
                client.mark_trial_abandoned(index)
    params, metrics, _, _ = client.get_best_parameterization()
    return metrics["error"][0], params
