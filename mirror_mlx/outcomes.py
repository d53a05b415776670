"""Which outcomes to prepare for: roots with scores, and the choice of the best under a budget.

score(r, v) = ĥ_r · p̃_r(v), where ĥ_r is the probability that verification ends at row r and p̃_r(v) the probability
of v there. At a row before the last the window's own token cannot be the outcome (it would have been accepted), so it
is left out and the rest renormalised.

Where draft and tap have both spoken of a row, p̃ is what they say together: see `pooling`.
"""

from collections.abc import Collection, Sequence

from mirror_mlx.messages import Candidates, Key, Outcome, Root


def reach(own: Sequence[float]) -> list[float]:
    """The probability that verification ends at each row, from the probability of each proposal.

    own  [γ] → [γ+1], summing to 1

    >>> reach([0.5, 0.5])
    [0.5, 0.25, 0.25]
    """
    ends, alive = [], 1.0
    for probability in own:
        p = min(max(probability, 0.0), 1.0)
        ends.append(alive * (1.0 - p))
        alive *= p
    return [*ends, alive]


def roots(candidates: Candidates, window: Sequence[int], kappa: int, taken: Collection[Key] = ()) -> list[Root]:
    """Up to `kappa` roots of each row, the window's own token left out where it cannot be the outcome, and those in
    `taken`, which somebody else has named already.

    >>> c = Candidates(tokens=[[7, 8], [9, 4]], probs=[[0.6, 0.3], [0.9, 0.1]], own=[0.6])
    >>> [r.key for r in roots(c, [7], kappa=1)]
    [(0, 8), (1, 9)]
    """
    found: list[Root] = []
    for row, ends in enumerate(reach(candidates.own)):
        excluded = window[row] if row < len(window) else None
        scale = ends / max(1.0 - candidates.own[row], 1e-9) if excluded is not None else ends
        pairs = zip(candidates.tokens[row], candidates.probs[row], strict=True)
        kept = [(token, p) for token, p in pairs if token != excluded and (row, token) not in taken][:kappa]
        found += [Root(row, token, scale * p) for token, p in kept]
    return found


def allocate(found: Sequence[Root], budget: int, fan_out: Sequence[int] | None = None) -> list[Root]:
    """The `budget` most likely roots, best first. Ties: lower row, lower token.

    fan_out  at most so many of each row; None: any number

    >>> found = [Root(0, 5, 0.4), Root(0, 6, 0.3), Root(1, 7, 0.1)]
    >>> [root.key for root in allocate(found, 2)], [root.key for root in allocate(found, 2, fan_out=[1, 1])]
    ([(0, 5), (0, 6)], [(0, 5), (1, 7)])
    """
    ranked = sorted(found, key=lambda root: (-root.score, root.row, root.token))
    if fan_out is not None:
        left = dict(enumerate(fan_out))
        kept = []
        for root in ranked:
            if left.get(root.row, 0) > 0:
                left[root.row] -= 1
                kept.append(root)
        ranked = kept
    return ranked[: max(budget, 0)]


def rank(candidates: Candidates, window: Sequence[int], outcome: Outcome) -> int | None:
    """Which of the candidates at its row the outcome is, from 0 on, the window's own token not counted; None: none of
    them.

    >>> rank(Candidates(tokens=[[7, 8, 9], [4]], probs=[[0.6, 0.3, 0.1], [1.0]], own=[0.6]), [8], Outcome(0, 9))
    1
    """
    row, own = outcome.accepted, window[outcome.accepted : outcome.accepted + 1]
    named = [token for token in candidates.tokens[row] if token not in own]
    return named.index(outcome.token) if outcome.token in named else None
