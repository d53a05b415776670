"""What a governor has learnt of the text and the draft: which proposals hold, which outcomes are foreseen. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from mirror_mlx.messages import PREDICTORS, Predictor, first_pass
from mirror_mlx.tuning.costs import Way
from mirror_mlx.tuning.policy import Probed, Stepped
from mirror_mlx.tuning.running import Acceptance, Confidence, Ranks, alive
from mirror_mlx.tuning.throughput import Setting


class Chance:
    """A `throughput.Belief` without a doubt: a draft without a backup.

    rates  how often a proposal holds, by place, given that those before it did; those beyond are as the last
    hits   the share of outcomes prepared for, whatever their number; own: of those, the draft's own
    """

    def __init__(self, rates: Sequence[float], hits: float, own: float = 1.0) -> None:
        self._rates, self._hits, self._own = rates, hits, own

    def alive(self, count: int) -> Sequence[float]:
        return alive(self._rates, count)

    def hits(self, count: float) -> float:
        return self._hits

    def own(self, count: float) -> float:
        return self._own

    def filled(self) -> float:
        return 1.0

    def backup(self, count: int) -> float:
        return 0.0


class Believed:
    """A `throughput.Belief`: acceptance, hits under one predictor, and what is proposed without a model."""

    def __init__(self, acceptance: Acceptance, ranks: Ranks, own: Ranks, proposer: "_Proposer") -> None:
        self.alive = acceptance.alive
        self.hits, self._own = ranks.hits, own.hits
        self.filled = proposer.filled
        self.backup = proposer.backup

    def own(self, count: float) -> float:
        return min(1.0, self._own(count / 2) / max(self.hits(count), 1e-9))


class Beliefs:
    """Of one draft, or of a proposer that needs none.

    ways    in which the draft proposes; none: there is no draft
    holds   the share of proposals that held when it was calibrated, by way
    backup  whether something proposes at no cost where the draft has nothing
    """

    def __init__(self, ways: Iterable[Way], holds: Mapping[Way, float], backup: bool) -> None:
        ways = list(ways)
        self._drafts = bool(ways)
        self._alive = {way: Acceptance(holds.get(way, 0.5)) for way in (*ways, (0, False))}
        self._sure = {way: Confidence() for way in self._alive}
        self._ranks: dict[Predictor, Ranks] = {predictor: Ranks() for predictor in PREDICTORS}
        self._proposer = _Proposer(backup)
        self._made: Setting | None = None  # what the next window was asked for with, if it came from a step

    def of(self, setting: Setting) -> Believed:
        return Believed(
            self._alive[_alike(setting.way)], self._ranks[setting.predictor], self._ranks["draft"], self._proposer
        )

    def sure(self, way: Way) -> Confidence:
        """What the draft's own probabilities are worth."""
        return self._sure[_alike(way)]

    def stepped(self, fact: Stepped) -> None:
        made, self._made = self._made or fact.setting, fact.setting
        if not self._drafts or fact.by in ("lookup", "empty"):
            self._proposer.saw(fact.length, fact.accepted)
        if fact.length and (fact.by != "lookup" or not self._drafts):
            self._compared(made.way, fact.length, fact.accepted, fact.confidences)
            self._main(made, fact.length, fact.accepted)
        if fact.opened:
            self._ranks[fact.setting.predictor].saw(fact.place, fact.opened)
            if fact.setting.predictor == "hybrid" and fact.own:
                own = fact.place if fact.place is not None and fact.place < fact.own else None
                self._ranks["draft"].saw(own, fact.own)

    def _main(self, made: Setting, length: int, accepted: int) -> None:
        """What a window of streams says of the main stream alone, which proposed the first token of each pass: at the
        other places it is as likely right as it is at its own."""
        streams, exact = made.way
        main = self._alive[0, False]
        if not streams or exact:
            return
        own = {0, *range(first_pass(made.length, 1 + streams), length, 1 + streams)}
        reached = range(min(length, accepted + 1))
        main.counted([float(accepted > place) if place in own else main.mean for place in reached])

    def probed(self, fact: Probed) -> None:
        self._made = None
        if not self._drafts:
            self._proposer.saw(fact.length, fact.accepted)
        self._compared(fact.way, fact.length, fact.accepted, fact.confidences)

    def _compared(self, way: Way, length: int, accepted: int, confidences: Sequence[float]) -> None:
        self._alive[_alike(way)].saw(length, accepted)
        self._sure[_alike(way)].saw(confidences[:length], accepted)


class _Proposer:
    """What proposes at no cost: all there is where there is no draft, a backup beside one.

    used  whether it is a backup
    """

    def __init__(self, used: bool) -> None:
        self._used = used
        self._filled, self._alive = Acceptance(), Acceptance(0.3)

    def saw(self, length: int, accepted: int) -> None:
        """A step without a window of the draft's."""
        self._filled.saw(1, min(length, 1))
        if length:
            self._alive.saw(length, accepted)

    def filled(self) -> float:
        return self._filled.rates()[0]

    def backup(self, count: int) -> float:
        return self.filled() * sum(self._alive.alive(count)) if self._used else 0.0


def _alike(way: Way) -> Way:
    """Ways whose proposals are as good: those that are checked are the main stream's own."""
    streams, exact = way
    return (0, False) if exact else (streams, False)
