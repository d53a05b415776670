"""What had better be done instead of plain decoding, looked for while that goes on. Pure."""

from collections.abc import Generator
from dataclasses import replace

from mirror_mlx.tuning.costs import checked, trusted
from mirror_mlx.tuning.estimates import Estimates
from mirror_mlx.tuning.lookout import Lookout, changed
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.throughput import Prediction

PROBE = 4
"""Proposals of a window that are compared with plain decoding, at most."""
_ALIKE = 0.02  # by as much more or less is expected, and it is not looked for something else,
_SKIPPED = 3  # so many times at most,
_OFFERED = 0.25  # and by so many tokens more or less of what a backup would have proposed


class Wish:
    """setting: found the last time, or what is done since; plain decoding: nothing."""

    def __init__(self, estimates: Estimates, lookout: Lookout) -> None:
        self._estimates, self._lookout = estimates, lookout
        self.setting = Setting("ar")
        self._hoped, self._skipped = 0.0, 0  # of it the last time it was looked for, in plain decoding's rate
        self._offered = 0.0  # of a backup's window, then

    @property
    def probe(self) -> Setting:
        """What the draft is asked for beside plain decoding. Where a lookup alone is best so far it is the way in which
        it proposes soonest: it is compared the more often, and what is never compared is never found to be better."""
        setting, length = self.setting, min(self.setting.length, PROBE)
        drafts = self._estimates.costs.drafts
        if setting.alone and (ways := [way for way in drafts if not checked(way)]):
            way = min(ways, key=lambda way: (drafts[way].jit(PROBE), -trusted(way)))
            setting, length = replace(setting, way=way), min(max(length, 1 + trusted(way)), PROBE)
        return replace(setting, length=length, late=length)

    def search(self, rate: float, may_look: bool) -> Generator[None, None, Prediction]:
        """What is expected of it, by and by. Most often it is near to what was best the last time. rate: of plain
        decoding, tokens a millisecond; may_look: whether there is time for it to look elsewhere."""
        estimates = self._estimates
        plain, offered = estimates.costs.plain, estimates.beliefs.of(self.setting).backup(PROBE)
        alike = abs(offered - self._offered) < _OFFERED
        if alike and self._hoped > 0 and (self._skipped < _SKIPPED or not may_look):
            estimates.rescale(plain / max(1.0, self._hoped))
            said = estimates.of(self.setting)
            hoped = said.rate * estimates.costs.plain
            if abs(hoped / self._hoped - 1) < _ALIKE or not (may_look or changed(hoped, self._hoped)):
                self._skipped += 1
                return said
        estimates.rescale(1 / rate)
        self._offered = offered
        self.setting, said = yield from self._lookout.search(estimates.costs, self.setting, near=estimates.slow)
        # Time is worth more once it is at work, and windows in turns end the sooner.
        if self.setting.mode == "sd" and said.rate > rate:
            estimates.rescale(1 / said.rate)
            self.setting, said = yield from self._lookout.search(estimates.costs, self.setting, near=estimates.slow)
        self._hoped = said.rate * estimates.costs.plain if self.setting.mode != "ar" else 0.0
        self._skipped = 0
        return said
