"""A suffix array, sorted as deep as it is read, by prefix doubling in numpy."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


def sort_suffixes(
    tokens: NDArray[np.int32], depth: int, progress: Callable[[int], None] = lambda sorted_by: None
) -> NDArray[np.int32]:
    """The places of `tokens`, in the order of the suffixes that begin there.

    tokens    [N], each in 0 … 2**31 - 2, N < 2**31 - 1; what lies past the end sorts before every token
    depth     suffixes that agree in this many tokens need no order: they keep that of their places
    progress  told how many tokens they are sorted by so far: 2, 4, 8 …

    Prefix doubling (Manber and Myers 1993): the order by 2h tokens follows from the order by h, looked up at a place
    and again h after it. Only groups whose members still agree are sorted again (Larsson and Sadakane 2007).
    O(N log N log depth) time, some 60 bytes a token.

    >>> sort_suffixes(np.array([3, 1, 3, 1, 2], np.int32), 64).tolist()
    [3, 1, 4, 2, 0]
    """
    count = len(tokens)
    rank: NDArray[np.int64] = np.zeros(count + 1, np.int64)  # 1 + the first slot of a suffix's group; past the end 0
    rank[:count] = tokens
    rank[:count] += 1
    suffixes: NDArray[np.int32] = np.arange(count, dtype=np.int32)
    slots: NDArray[np.int64] = np.arange(count)  # of suffixes that share their group
    done = 1
    while len(slots):
        members = suffixes[slots]
        keys = rank[members] << 32
        keys += rank[np.minimum(members.astype(np.int64) + done, count)]
        order = np.argsort(keys, kind="stable")
        keys, members = keys[order], members[order]
        suffixes[slots] = members
        heads = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        sizes = np.diff(heads, append=len(keys))
        rank[members] = np.repeat(slots[heads], sizes) + 1
        slots = slots[np.repeat(sizes, sizes) > 1]
        done *= 2
        progress(done)
        if done >= depth:
            break
    return suffixes
