"""Token recycling: what the target found likely after a token before."""

from collections.abc import Sequence

from mirror_mlx.errors import UsageError


class TokenRecycling:
    """Token Recycling (Luo et al. 2024, arXiv 2408.08696): the candidates of earlier steps are used again.

    `successors` is the paper's adjacency matrix, a token's `k` likeliest successors when the target last saw it,
    best first; as a dictionary, so that it holds the tokens that were seen and not k times the vocabulary. Every
    verified row writes its own, rejected ones too, the last one where a token is in several. It stays from request
    to request (the paper's hot start).

    A chain: the best successor of the last token, the best successor of that, and so on. The paper verifies a static
    tree of 80 nodes that branches to the other k - 1 as well; those are kept in `successors` and proposed by nobody.

    >>> recycling = TokenRecycling(k=2)
    >>> recycling.begin([5])
    >>> recycling.learn([5, 6], [[7, 6], [8, 9]])
    >>> recycling.extend([7, 6])
    >>> recycling.propose(4)
    [8]
    """

    name = "recycle"

    def __init__(self, k: int = 8) -> None:
        """Raises UsageError unless k ≥ 1."""
        if k < 1:
            raise UsageError(f"k is {k}: it must be 1 or more")
        self.wants = k
        self.successors: dict[int, tuple[int, ...]] = {}
        self._last: int | None = None

    def begin(self, tokens: Sequence[int]) -> None:
        self._last = None
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        if len(tokens):
            self._last = int(tokens[-1])

    def learn(self, rows: Sequence[int], likely: Sequence[Sequence[int]]) -> None:
        for token, candidates in zip(rows, likely, strict=False):
            if len(candidates):
                self.successors[int(token)] = tuple(map(int, candidates[: self.wants]))

    def propose(self, length: int) -> list[int]:
        chain: list[int] = []
        found = self.successors.get(self._last) if self._last is not None else None
        while found and len(chain) < length:
            chain.append(found[0])
            found = self.successors.get(found[0])
        return chain
