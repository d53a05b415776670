"""What is expected of every way of decoding, from what was seen of devices, draft and text. Pure."""

from collections.abc import Mapping

from mirror_mlx.messages import HITS
from mirror_mlx.tuning.belief import Beliefs
from mirror_mlx.tuning.costs import Costs, Way
from mirror_mlx.tuning.observed import Observed
from mirror_mlx.tuning.policy import Stepped
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.throughput import Prediction, first_window, known_outcome, predict


class Estimates:
    """observed: what the devices take; beliefs: what holds. Arguments as for `Governor`."""

    def __init__(self, costs: Costs, holds: Mapping[Way, float], backup: bool) -> None:
        self.observed, self.beliefs = Observed(costs), Beliefs(costs.drafts, holds, backup)

    @property
    def costs(self) -> Costs:
        """As of the last `rescale`."""
        return self.observed.costs

    @property
    def slow(self) -> bool:
        """Whether the draft's device takes much longer than it should."""
        return self.observed.slow

    def of(self, setting: Setting) -> Prediction:
        return predict(self.costs, setting, self.beliefs.of(setting))

    def rate(self, setting: Setting) -> float:
        """Tokens a millisecond."""
        return self.of(setting).rate

    def rescale(self, token: float) -> None:
        """From now on what follows is of the devices as they are now. token: what one is worth, ms (see `Costs`)."""
        self.observed.rescale(token)

    def opened(self, fact: Stepped, whole: float) -> None:
        """The first step of an answer has taken so long, but for what the target had to do besides."""
        if fact.setting.alone or fact.setting.way not in self.costs.drafts:
            return
        waited = first_window(self.costs, fact.setting)
        self.observed.opened(whole - waited - (fact.accepted + 1) / self.rate(fact.setting))

    def weigh(self, fact: Stepped) -> None:
        """What a step took beside what its parts are expected to."""
        if fact.ends:
            return
        if fact.setting.mode == "sd":
            self.observed.lasted(fact, self.observed.serial(fact))
            return
        if fact.setting.way not in self.costs.drafts:  # nothing is known of what its passes take
            return
        place = fact.place if fact.source in HITS else None
        costs, belief = self.observed.during(fact), self.beliefs.of(fact.setting)
        lasts, share = known_outcome(costs, fact.setting, belief, place, fact.guessed is True)
        self.observed.lasted(fact, lasts)
        if fact.opened:
            self.observed.prepared(fact, share)
