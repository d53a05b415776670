"""What draft and tap say together of the outcomes of a step, and how much each of them counts. Pure.

p(v) ∝ draft(v)^a · tap(v)^b, over all that either names: a product of experts. A trained tap deep in the target says
more than the draft, a plain logit lens half-way next to nothing, and either may be surer than it should be: a and b are
learnt, by the likelihood of what the target has said of each row that verification came to.
"""

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from typing import NamedTuple

from mirror_mlx.messages import Candidates, Outcome

_LEAST = 1e-9  # probability
_RATE, _KEEP = 0.05, 0.99  # of learning, and of the gradients that it is measured by
_FIRST = 25.0  # squared gradient, as if there had been one: the first steps move little
_MOST = 2.0  # exponent

Opinions = Mapping[int, tuple[float, float]]
"""Of a row: log-probabilities of the tokens that either names, the draft's and the tap's. Whoever does not name one is
taken to find it as likely as the last one named."""


class Pooled(NamedTuple):
    """candidates: both opinions as one; of each row what either said, and the law that they come to."""

    candidates: Candidates
    opinions: Sequence[Opinions]
    laws: Sequence[Mapping[int, float]]


class Pooling:
    """draft, tap: what each counts for at first.

    >>> both = Pooling()
    >>> draft = Candidates(tokens=[[7, 8]], probs=[[0.8, 0.1]], own=[])
    >>> tap = Candidates(tokens=[[9, 7]], probs=[[0.5, 0.4]], own=[])
    >>> both.pool(draft, tap).candidates.tokens
    [[7, 9, 8]]
    >>> for _ in range(200):
    ...     both.saw(both.pool(draft, tap), [], Outcome(0, 9))  # the tap is right
    >>> both.pool(draft, tap).candidates.tokens
    [[9, 7, 8]]
    """

    def __init__(self, draft: float = 0.8, tap: float = 0.6) -> None:
        self._weights = [draft, tap]
        self._squares = [_FIRST, _FIRST]

    @property
    def weights(self) -> tuple[float, float]:
        """What the draft counts for, and the tap."""
        return self._weights[0], self._weights[1]

    def pool(self, draft: Candidates, tap: Candidates) -> Pooled:
        """Their opinions as one."""
        a, b = self._weights
        tokens, probs, own, opinions, laws = [], [], [], [], []
        for row in range(len(tap.tokens)):
            said = _opinions(draft.tokens[row], draft.probs[row], tap.tokens[row], tap.probs[row])
            scores = [a * one + b * other for one, other in said.values()]
            most = max(scores, default=0.0)
            odds = [exp(score - most) for score in scores]
            whole = max(sum(odds), _LEAST)
            law = {token: one / whole for token, one in zip(said, odds, strict=True)}
            ranked = sorted(law, key=law.__getitem__, reverse=True)
            tokens.append(ranked)
            probs.append([law[token] for token in ranked])
            if row < len(tap.own):
                score = a * _log(draft.own[row]) + b * _log(tap.own[row])
                own.append(min(1.0, exp(min(score - most, 0.0)) / whole))
            opinions.append(said)
            laws.append(law)
        return Pooled(Candidates(tokens, probs, own), opinions, laws)

    def saw(self, pooled: Pooled, window: Sequence[int], outcome: Outcome) -> None:
        """Verification has ended: each proposal that held was the target's token of its row, and the outcome's of the
        next. A step of gradient ascent on their log-likelihood, as large as gradients have been of late (RMSprop)."""
        slopes = [0.0, 0.0]
        for row, token in enumerate([*window[: outcome.accepted], outcome.token]):
            said, law = pooled.opinions[row], pooled.laws[row]
            if token in said:
                for who in (0, 1):
                    slopes[who] += said[token][who] - sum(p * said[other][who] for other, p in law.items())
        for who, slope in enumerate(slopes):
            self._squares[who] = _KEEP * self._squares[who] + slope**2
            moved = self._weights[who] + _RATE * slope / sqrt(self._squares[who])
            self._weights[who] = min(max(moved, 0.0), _MOST)


def _opinions(drafted: Sequence[int], draft: Sequence[float], tapped: Sequence[int], tap: Sequence[float]) -> Opinions:
    first = dict(zip(drafted, map(_log, draft), strict=True))
    second = dict(zip(tapped, map(_log, tap), strict=True))
    least = min(first.values(), default=_log(0)), min(second.values(), default=_log(0))
    return {token: (first.get(token, least[0]), second.get(token, least[1])) for token in [*tapped, *drafted]}


def _log(probability: float) -> float:
    return log(max(probability, _LEAST))
