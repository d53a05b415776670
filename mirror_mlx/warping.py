"""mlx-lm's warpers where only some tokens of each row are known, without MLX.

MLX's default device is one for the whole process, also while `mx.stream(mx.cpu)` is in force on one thread: what the
target's thread builds just then goes to the CPU. So a draft on a device of its own warps its few tokens with NumPy.
"""

import numpy as np


def top_p(logprobs: np.ndarray, p: float) -> np.ndarray:
    """Of each row [R, K] the likeliest tokens that have a share `p` of what the row has in all; the others -inf."""
    ordered = np.sort(logprobs, axis=-1)
    probs = np.exp(ordered)
    above = np.cumsum(probs[:, ::-1], axis=-1, dtype=np.float32)[:, ::-1]  # with its own
    dropped = (above - probs >= p * above[:, :1]).sum(axis=-1, keepdims=True)
    least = np.take_along_axis(ordered, dropped, axis=-1)
    return np.where(logprobs < least, -np.inf, logprobs)


def min_p(logprobs: np.ndarray, p: float, keep: int) -> np.ndarray:
    """Those that have at least `p` of the likeliest one's probability; at least `keep` of them."""
    kept = logprobs >= logprobs.max(axis=-1, keepdims=True) + np.log(p)
    if keep > 1:
        kept |= logprobs >= np.partition(logprobs, -keep, axis=-1)[:, -keep, None]
    return np.where(kept, logprobs, -np.inf)


def top_k(logprobs: np.ndarray, k: int) -> np.ndarray:
    """The `k` likeliest, fewer than there are."""
    others = np.argpartition(-logprobs, k - 1, axis=-1)[:, k:]
    found = logprobs.copy()
    np.put_along_axis(found, others, -np.inf, axis=-1)
    return found


def xtc(logprobs: np.ndarray, threshold: float, spared: np.ndarray) -> np.ndarray:
    """Without those that have more than `threshold`, save for the least likely of these and for those that are
    `spared` [R, K]."""
    probs = np.exp(logprobs - logprobs.max(axis=-1, keepdims=True))
    probs /= probs.sum(axis=-1, keepdims=True)
    least = np.where(probs > threshold, probs, np.inf).min(axis=-1, keepdims=True)
    return np.where((probs > least) & ~spared, -np.inf, logprobs)
