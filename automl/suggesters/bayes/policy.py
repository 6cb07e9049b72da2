"""The rules of `bayes` beside "maximise the acquisition", on one page, each with a switch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """Which rules are on. A benchmark flips one to measure its effect.

    `Policy(local_if_stalled=False)` goes to `BayesSuggester(..., policy=...)`. The comments name
    the file that follows a rule; its constants stand there.
    """

    # --- Which configuration is proposed: suggester.py, design.py, forced_exploration.py, batch.py

    # The first configuration has defaults and middles (or the modes of the user's prior).
    middle_first: bool = True
    # The design leaves out the outer fifth of each range at either end (design.py).
    inner_design: bool = True
    # Every sixth suggestion tries an option of which all trials failed, up to three times.
    retry_failed_options: bool = True
    # In a stalled search, every third suggestion lies beside the best trial.
    local_if_stalled: bool = True
    # The surrogate's mean, not the noisy loss, says which trials are best and when one was better.
    smoothed_incumbents: bool = True
    # Candidates lie at the ends of ranges too (candidates.py).
    ends: bool = True

    # --- Failures: acquisition/feasibility.py, model/surrogates.py

    # A probability of success is demanded. It rises with each failure.
    failure_budget: bool = True
    # Lack of memory is predicted from the measured peaks and an unknown threshold.
    memory_threshold: bool = True

    # --- The improvement: acquisition/logei.py, acquisition/hypervolume.py

    # The ensemble's expected improvements are combined by a power mean, not the arithmetic mean.
    power_mean: bool = True
    # The hypervolume's reference point is the worst of all trials, not just beyond the front.
    distant_reference: bool = True

    # --- The surrogates: model/

    # A surrogate sees only the parameters that affect its metric (aspects.py).
    aspects: bool = True
    # A goal within a deadline is composed of quality by step and seconds by step (deadline.py).
    deadline_model: bool = True
    # It assumes a pace one standard deviation better than predicted (deadline.py).
    optimistic_pace: bool = True
    # Each number has a slope and a parabola of either sign, integrated out (features.py).
    trend: bool = True
    # The kernel has all pairwise interactions of main effects (features.py, kernel.py).
    pair_kernel: bool = True
    # One direction across the numbers is learned after 20 trials (fit.py, kernel.py).
    learned_direction: bool = True
    # Lengthscales follow the number of parameters that are active at once (features.py).
    scaled_to_active: bool = True
    # Losses far above the median are compressed by a logarithm (transforms.py).
    knee_transform: bool = True


ALL_RULES = Policy()
