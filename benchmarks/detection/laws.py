"""Three laws of scores with a mean of .85, from hardly to as much scattered as scores can be, and what a drop does."""

from __future__ import annotations

import numpy as np

M0, SEED = 0.85, 20260101


def beta(rng, mean, shape):
    """Standard deviation .12 at .85; the concentration stays when the mean moves."""
    return rng.beta(7.854 * mean, 7.854 * (1.0 - mean), shape)


def llm_like(rng, mean, shape):
    """Spikes at 0 and 1 and a middle, sd .27 at .85; a drop moves mass from 1 to 0 and lowers the middle, half each."""
    drop = M0 - mean
    middle = 0.735 - drop / 2 / 0.34
    u = rng.random(shape)
    scores = rng.beta(4.73 * middle, 4.73 * (1.0 - middle), shape)
    return np.where(u < 0.06 + drop / 2, 0.0, np.where(u < 0.66, 1.0, scores))


def binary(rng, mean, shape):
    """Right or wrong, sd .36."""
    return (rng.random(shape) < mean).astype(float)


LAWS = {"beta": beta, "LLM-like": llm_like, "binary": binary}
