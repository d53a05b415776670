"""Which outcomes to prepare for: roots with scores, and the choice of the best under a budget.

score(r, v) = ĥ_r · p̃_r(v), where ĥ_r is the probability that verification ends at row r and p̃_r(v) the probability
of v there. At a row before the last the window's own token cannot be the outcome (it would have been accepted), so it
is left out and the rest renormalised.

Where draft and tap have both spoken of a row, their opinions are pooled as a weighted product of experts: p̃ is highest
for what neither finds unlikely (measured in docs/log.md).
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


DRAFT_WEIGHT = 0.4  # of the draft's opinion beside the tap's; from 0.3 to 0.5 hit rates hardly differ


def pool(draft: Candidates, tap: Candidates, weight: float = DRAFT_WEIGHT) -> Candidates:
    """Both opinions as one: p(v) ∝ draft(v)^weight · tap(v)^(1 − weight), over all that either names.

    Whoever does not name a token is taken to find it as likely as the last one named.

    >>> draft = Candidates(tokens=[[7, 8]], probs=[[0.8, 0.1]], own=[])
    >>> tap = Candidates(tokens=[[9, 7]], probs=[[0.5, 0.4]], own=[])
    >>> pool(draft, tap).tokens
    [[7, 9, 8]]
    """
    tokens, probs, own = [], [], []
    rows = zip(draft.tokens, draft.probs, tap.tokens, tap.probs, strict=True)
    for row, (drafted, drafted_probs, tapped, tapped_probs) in enumerate(rows):
        first, second = dict(zip(drafted, drafted_probs, strict=True)), dict(zip(tapped, tapped_probs, strict=True))
        least = min(drafted_probs, default=_LEAST), min(tapped_probs, default=_LEAST)
        both = {
            v: _product(first.get(v, least[0]), second.get(v, least[1]), weight)
            for v in dict.fromkeys([*tapped, *drafted])
        }
        total = max(sum(both.values()), _LEAST)
        ranked = sorted(both, key=lambda v: -both[v])
        tokens.append(ranked)
        probs.append([both[v] / total for v in ranked])
        if row < len(tap.own):
            own.append(min(1.0, _product(draft.own[row], tap.own[row], weight) / total))
    return Candidates(tokens, probs, own)


def _product(one: float, other: float, weight: float) -> float:
    return float(max(one, _LEAST) ** weight * max(other, _LEAST) ** (1.0 - weight))


_LEAST = 1e-9


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
