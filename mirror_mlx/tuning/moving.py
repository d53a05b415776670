"""On which of several hosts the draft is best: one governor for each, of which one decides. Pure.

The draft belongs on the first. It moves away when that one has become slow or fails, once another one has shown beside
plain decoding what it can do, and back when the first is as good again, which short stretches show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mirror_mlx.tuning.governor import Governor
from mirror_mlx.tuning.policy import Account, Ask, Probed, Stepped
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.stopping import Stop
from mirror_mlx.tuning.tally import Plained

_BETTER = 1.03  # times what is expected here makes another host worth a move
_REST = 512  # tokens for which a host is left alone on which the draft has died; twice as many after each further time


class Moving:
    """A policy. governors: by host, where the draft belongs first; here: where it begins, elsewhere if it failed there;
    "": where it belongs."""

    def __init__(self, governors: Mapping[str, Governor], here: str = "") -> None:
        self._governors = dict(governors)
        self._home = next(iter(self._governors))
        self._here = self._probing = here or self._home
        self._failures = int(self._here != self._home)  # at home
        self._rests = _REST * self._failures  # so many tokens more is it left alone
        self._tried: list[str] = []
        self._unsaid = 0.0  # ms of steps that only the active one was told of

    @property
    def _active(self) -> Governor:
        return self._governors[self._here]

    @property
    def drifted(self) -> bool:
        return self._governors[self._home].drifted

    @property
    def _troubled(self) -> bool:
        return self._rests > 0 or self._governors[self._home].slow

    def ask(self) -> Ask:
        ask = self._active.ask()
        setting = _at(self._here, ask.setting)
        if not ask.plain:
            return Ask(setting)
        probe = ask.probe if self._probing == self._here else self._governors[self._probing].probe
        return Ask(setting, ask.plain, None if probe is None else _at(self._probing, probe))

    def opening(self, prompt: int) -> Setting | None:
        setting = self._active.opening(prompt)
        return None if setting is None else _at(self._here, setting)

    def enough(self, confidences: Sequence[float]) -> int:
        return self._active.enough(confidences)

    def waits(self, setting: Setting) -> float:
        return self._active.waits(setting)

    def stop(self, setting: Setting) -> Stop | None:
        return self._active.stop(setting)

    def patience(self, setting: Setting) -> float | None:
        return self._active.patience(setting)

    def proposed(self, confidences: Sequence[float]) -> None:
        self._active.proposed(confidences)

    def verified(self, length: int, accepted: int, confidences: Sequence[float]) -> None:
        self._active.verified(length, accepted, confidences)

    def stepped(self, fact: Stepped) -> None:
        self._active.stepped(fact)
        self._unsaid += fact.whole
        self._rests -= fact.accepted + 1
        self._look_out()

    def plained(self, fact: Plained) -> None:
        self._rests -= fact.count
        for governor in self._governors.values():
            governor.plained(fact)

    def probed(self, fact: Probed) -> None:
        self._governors[fact.host or self._here].probed(fact)

    def stretched(self) -> None:
        self._hear()
        if self._active.choosing:
            self._active.stretched()
            self._hear()
            return
        self._active.stretched(may=self._here != self._home or self._rests <= 0)
        for host, governor in self._governors.items():
            if host != self._here:
                governor.rested(self._unsaid)
        self._unsaid = 0.0
        others = [host for host in self._governors if host != self._here and self._may_move_to(host)]
        prospect, best = max(((self._governors[host].prospect(), host) for host in others), default=(0.0, ""))
        if prospect > _BETTER * max(1.0, self._active.gain):
            self._active.park(f"the draft is moved to {best}")
            self._governors[best].resume()
            self._here = best
        self._look_out(stretched=True)
        self._hear()

    def failed(self) -> None:
        if self._here == self._home:
            self._rests = _REST << min(self._failures, 16)
            self._failures += 1
        self._active.failed()
        self._look_out(stretched=True)

    def answered(self, tokens: int) -> None:
        for governor in self._governors.values():
            governor.answered(tokens)

    def account(self) -> Account:
        self._hear()
        tried, self._tried = tuple(self._tried), []
        return replace(self._active.account(), setting=str(_at(self._here, self._active.setting)), tried=tried)

    def _hear(self) -> None:
        """What has been decided since the last time, in its order."""
        for host, governor in self._governors.items():
            self._tried += [f"{host}: {line}" for line in governor.account().tried]

    def _may_move_to(self, host: str) -> bool:
        return self._troubled if host != self._home else self._rests <= 0

    def _look_out(self, stretched: bool = False) -> None:
        """Who proposes beside the next stretch of plain decoding."""
        if not self._active.parked:
            self._probing = self._home if self._rests <= 0 else self._here
        elif not self._troubled:
            self._probing = self._here
        elif stretched:  # in turn
            hosts = [host for host in self._governors if self._rests <= 0 or host != self._home]
            at = hosts.index(self._probing) if self._probing in hosts else -1
            self._probing = hosts[(at + 1) % len(hosts)]


def _at(host: str, setting: Setting) -> Setting:
    return setting if setting.mode == "ar" else replace(setting, host=host)
