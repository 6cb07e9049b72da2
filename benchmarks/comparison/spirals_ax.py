from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from benchmarks.comparison.tasks import train_network

PARAMETERS = [
    RangeParameterConfig("lr", (1e-3, 1.0), "float", scaling="log"),
    RangeParameterConfig("momentum", (0.0, 0.99), "float"),
    RangeParameterConfig("width", (4, 128), "int", scaling="log"),
    RangeParameterConfig("depth", (1, 4), "int"),
    ChoiceParameterConfig("activation", ["relu", "tanh"], "str"),
]


def evaluate(client, index, params):
    for epoch, error in train_network(params):
        client.attach_data(index, {"error": error}, progression=epoch)
        if client.should_stop_trial_early(index):
            client.mark_trial_early_stopped(index)
            return
    client.complete_trial(index)


def search(seed, trials=30):
    client = Client(random_seed=seed)
    client.configure_experiment(PARAMETERS)
    client.configure_optimization("-error")
    for _ in range(trials):
        for index, params in client.get_next_trials(max_trials=1).items():
            evaluate(client, index, params)
    params, metrics, _, _ = client.get_best_parameterization()
    return metrics["error"][0], params
