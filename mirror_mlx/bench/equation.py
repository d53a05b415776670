"""The latency law as a formula: how long a step should take, from what its parts take.

Mirror-SD (arXiv 2510.13161), equation 10, is T = prefix + tap + max(suffix, rollout) + exchange for a step whose
outcome was foreseen. Completed here by what a step costs whose outcome was not, and by passes that are under way: when
the tap or the outcome arrives, and when the next step begins, whose glue has to wait for them. Pure: milliseconds in,
milliseconds out.
"""

from collections import defaultdict
from dataclasses import dataclass

from mirror_mlx.bench.rollout import Rollout

_STEPS = 16  # after which how long the draft is still busy has settled
FACTORS = {
    "num_draft_tokens": (1, 3, 5, 7, 10),
    "kappa": (1, 2, 4, 8),
    "exit_layer": (1, 2, 4, 6),
    "streams": (0, 1, 2),
    "pass_ms": (5.0, 10.0, 20.0, 40.0),
}
"""What is varied, and how: window, fan-out, depth of the tap, streams, and the draft's size as its pass time."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a step is made of, ms.

    verify     the target's verification of a full window, its tap included
    tap        from its start until the tap has its values; None: there is no tap
    one_pass   one pass of the draft beside it
    passes     of a rollout, J
    exchange   both hand-overs between the threads
    glue       None: as a pass
    late_pass  one pass for a window that is drafted while the target waits; None: as beside it
    groups     how often a rollout is made, where not all roots fit a pass: the likeliest are served to their end first
    """

    verify: float
    tap: float | None
    one_pass: float
    passes: int
    exchange: float = 0.0
    glue: float | None = None
    late_pass: float | None = None
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Law:
    """How long a step takes, ms, by how it ends, and on average at this hit rate.

    own, tapped  when the rollouts of the draft's own roots end, and those of the tap's, if it is free when the step
                 begins; 0: there are none
    """

    hit: float
    miss: float
    mean: float
    own: float
    tapped: float


def law(parts: Parts, hit_rate: float, *, own: bool = True, own_share: float = 1.0) -> Law:
    """What the law says.

    own        the draft's own roots are rolled out from the glue on (predictors draft and hybrid)
    own_share  of the hits, how many are the draft's own roots

    >>> fits = law(Parts(verify=100, tap=40, one_pass=10, passes=3), 0.9)
    >>> fits.hit, fits.miss, round(fits.mean, 1)
    (100.0, 130.0, 103.0)
    >>> slow = law(Parts(verify=100, tap=40, one_pass=30, passes=3), 0.9)
    >>> slow.own, slow.tapped, slow.hit, slow.miss
    (120.0, 150.0, 120.0, 210.0)
    >>> pressed = law(Parts(verify=100, tap=40, one_pass=24, passes=3), 1.0)  # every other step begins late
    >>> pressed.own, pressed.tapped, round(pressed.hit)
    (96.0, 120.0, 108)
    """
    by_own = hit_rate * own_share if own else 0.0
    hit = miss = 0.0
    chances = {0.0: 1.0}  # of how long the draft is still busy when a step begins
    for number in range(_STEPS):
        after: defaultdict[float, float] = defaultdict(float)
        for late, chance in chances.items():
            step = _Step.of(parts, own, late)
            ends = ((step.own, by_own), (step.tapped, hit_rate - by_own))
            for took, share in ends:
                # Where the target waited, the draft did nothing else meanwhile.
                after[0.0 if took > parts.verify else round(step.left, 1)] += chance * share
            after[0.0] += chance * (1 - hit_rate)
            if number >= _STEPS // 2:
                weight = chance / (_STEPS - _STEPS // 2)
                hit += weight * (sum(took * share for took, share in ends) / hit_rate if hit_rate else step.own)
                miss += weight * step.miss
        chances = after
    ready = _Step.of(parts, own, 0.0)
    return Law(
        hit + parts.exchange, miss + parts.exchange, hit_rate * hit + (1 - hit_rate) * miss + parts.exchange,
        ready.own_ends, ready.tapped_ends,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Step:
    """One that begins while the draft is busy with the last one, without the exchange. Times as in `Law`.

    left  how long the draft goes on after it, where nobody waited for it
    """

    own: float
    tapped: float
    miss: float
    left: float
    own_ends: float
    tapped_ends: float

    @classmethod
    def of(cls, parts: Parts, own: bool, late: float) -> "_Step":
        one, passes, verify = parts.one_pass, parts.passes, parts.verify
        late_pass = one if parts.late_pass is None else parts.late_pass
        glue = one if parts.glue is None else parts.glue
        first = Rollout(late + glue, one, passes if own else 0)
        last = first if parts.tap is None else first.joined(parts.tap, passes)
        ends = max(last.ends, (first if own else last).starts + parts.groups * passes * one)
        free = Rollout(first.starts, one, round((ends - first.starts) / one)).free(verify)
        return cls(
            verify + first.waits(verify, passes, late_pass), verify + last.waits(verify, passes, late_pass),
            free + passes * late_pass,
            free - verify, first.ends if own else 0.0, last.ends if parts.tap is not None else 0.0,
        )  # fmt: skip
