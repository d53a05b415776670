"""The latency law as a formula: how long a step should take, from what its parts take by themselves.

Mirror-SD (arXiv 2510.13161), equation 10, is T = prefix + tap + max(suffix, rollout) + exchange for a step whose
outcome was foreseen. Completed here by what a step costs whose outcome was not, and by passes that are under way when
the tap or the outcome arrives. Pure: milliseconds in, milliseconds out.
"""

from dataclasses import dataclass

from mirror_mlx.tuning.latency import Rollout

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
    """

    verify: float
    tap: float | None
    one_pass: float
    passes: int
    exchange: float = 0.0
    glue: float | None = None
    late_pass: float | None = None


@dataclass(frozen=True, slots=True)
class Law:
    """How long a step takes, ms, by how it ends, and on average at this hit rate.

    own, tapped  when the rollouts of the draft's own roots end, and those of the tap's; 0: there are none
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
    (120, 150, 120.0, 210.0)
    """
    one = parts.one_pass
    late = one if parts.late_pass is None else parts.late_pass
    glue = one if parts.glue is None else parts.glue
    first = Rollout(glue, one, parts.passes if own else 0)
    tapped = None if parts.tap is None else first.joined(parts.tap, parts.passes)
    last = tapped or first
    by_own, by_tap = (parts.verify + rollout.waits(parts.verify, parts.passes) for rollout in (first, last))
    hit = own_share * by_own + (1 - own_share) * by_tap if own else by_tap
    busy = max(first, last, key=lambda rollout: rollout.ends)
    miss = busy.free(parts.verify) + parts.passes * late
    return Law(
        hit + parts.exchange, miss + parts.exchange, hit_rate * hit + (1 - hit_rate) * miss + parts.exchange,
        first.ends if own else 0.0, tapped.ends if tapped else 0.0,
    )  # fmt: skip
