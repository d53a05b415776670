"""Retrieval: what most often followed in a datastore of other texts."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mirror_mlx.errors import UsageError
from mirror_mlx.lookup.datastore import END, Datastore


class Retrieval:
    """Retrieval-based speculative decoding (REST: He et al. 2023, arXiv 2311.08252), as a chain.

    The longest of the n-grams that end the text (n = `max_ngram` … `min_ngram`) that stands in the datastore is looked
    up, and what follows its occurrences counted as a trie. Proposed is the path of the most frequent child, of equal
    ones that with the lowest id, as far as documents go; at most as many tokens as the datastore is deep. The paper
    verifies a tree of the trie's 64 most frequent nodes.

    Binary search in the suffix array: O(log max_ngram · log N) comparisons to find, O(samples · length) to count.

    >>> retrieval = Retrieval(Datastore.build([[1, 2, 3, 4], [1, 2, 5, 6], [0, 2, 5, 7]]), min_ngram=1)
    >>> retrieval.begin([1, 2])
    >>> retrieval.propose(2)
    [3, 4]
    >>> retrieval.begin([9, 2])
    >>> retrieval.propose(2)
    [5, 6]
    """

    name = "retrieve"
    wants = 0

    def __init__(self, store: Datastore, max_ngram: int = 16, min_ngram: int = 2, *, samples: int = 512) -> None:
        """samples: how many occurrences are counted; of more, so many evenly spread over their order.

        Raises UsageError unless 1 ≤ min_ngram ≤ max_ngram ≤ the store's depth and samples ≥ 1.
        """
        if not 1 <= min_ngram <= max_ngram:
            raise UsageError(f"min_ngram is {min_ngram} and max_ngram {max_ngram}: they must be 1 ≤ min ≤ max")
        if max_ngram > store.depth:
            raise UsageError(f"max_ngram is {max_ngram}: this datastore is sorted by {store.depth} tokens, not more")
        if samples < 1:
            raise UsageError(f"samples is {samples}: it must be 1 or more")
        self.store = store
        self._max_ngram, self._min_ngram, self._samples = max_ngram, min_ngram, samples
        self._tail: list[int] = []

    def begin(self, tokens: Sequence[int]) -> None:
        self._tail = []
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        self._tail = [*self._tail, *map(int, tokens[-self._max_ngram :])][-self._max_ngram :]

    def learn(self, rows: Sequence[int], likely: Sequence[Sequence[int]]) -> None:
        pass

    def propose(self, length: int) -> list[int]:
        length = min(length, self.store.depth)
        n, slots = self._longest()
        while length > 0 and n >= self._min_ngram:
            if chain := self._continued(n, slots, length):
                return chain
            n -= 1  # it only stands where documents end
            slots = self.store.find(self._tail[len(self._tail) - n :])
        return []

    def _longest(self) -> tuple[int, range]:
        """The length of the longest n-gram there is, 0 where there is none, and the slots where it is."""
        found, slots = 0, range(0)
        low, high = self._min_ngram, len(self._tail)
        while low <= high:  # where an n-gram is, its own end is too
            n = (low + high) // 2
            if here := self.store.find(self._tail[-n:]):
                found, slots, low = n, here, n + 1
            else:
                high = n - 1
        return found, slots

    def _continued(self, n: int, slots: range, length: int) -> list[int]:
        """The path of the most frequent child, after the `n` tokens that these suffixes begin with."""
        taken = min(len(slots), self._samples)
        places = self.store.suffixes[slots.start + np.arange(taken) * len(slots) // taken]
        columns = places[:, None] + np.arange(n, n + length)
        rows = self.store.tokens[np.minimum(columns, len(self.store.tokens) - 1)].tolist()
        chain: list[int] = []
        for column in range(length):
            counts = Counter(row[column] for row in rows)
            counts.pop(END, None)
            if not counts:
                break
            best = max(counts, key=counts.__getitem__)
            chain.append(best)
            rows = [row for row in rows if row[column] == best]
        return chain
