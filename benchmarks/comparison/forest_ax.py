from ax.api.client import Client
from ax.api.configs import RangeParameterConfig

from benchmarks.comparison.tasks import grow_forest

PARAMETERS = [
    RangeParameterConfig("trees", (1, 64), "int", scaling="log"),
    RangeParameterConfig("depth", (2, 16), "int"),
    RangeParameterConfig("leaf", (1, 32), "int", scaling="log"),
    RangeParameterConfig("features", (0.02, 1.0), "float"),
]


def search(seed, trials=30):
    client = Client(random_seed=seed)
    client.configure_experiment(PARAMETERS)
    client.configure_optimization("-error, -nodes", outcome_constraints=["recall >= 0.6"])
    for _ in range(trials):
        for index, params in client.get_next_trials(max_trials=1).items():
            client.complete_trial(index, grow_forest(params))
    front = client.get_pareto_frontier(use_model_predictions=False)
    return [(metrics["error"][0], metrics["nodes"][0]) for _, metrics, _, _ in front]
