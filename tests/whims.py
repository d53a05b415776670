"""Policies that decide anything at all, and an engine that does as they say."""

import random

from mirror_mlx.engine import Engine
from mirror_mlx.sampling import Sampling
from mirror_mlx.tuning.policy import Account, Ask
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.stopping import Stop

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
COUNT = 48


def plain(model, sampling=Sampling(), count=COUNT, prompt=PROMPT):
    with Engine(model, mode="ar") as engine:
        return [r.token for r in engine.stream(prompt, count, sampling)]


def said(engine, sampling=Sampling(), count=COUNT, prompt=PROMPT):
    return [r.token for r in engine.stream(prompt, count, sampling)]


class Whim:
    """A policy that decides anything at all."""

    def __init__(self, seed, ways=((0, False),), exits=(1, 2, 3), hosts=("",)):
        self._random = random.Random(seed)
        self._ways, self._exits, self._hosts = ways, exits, hosts
        self.facts, self.answers = [], []

    def _setting(self):
        pick = self._random.choice
        length = self._random.randint(0, 6)
        return Setting(
            pick(["mirror", "mirror", "sd"]), length, self._random.randint(0, length), self._random.randint(1, 12),
            pick(["draft", "tap", "hybrid"]), pick(self._exits), pick(self._ways),
            pick(self._hosts),
        )  # fmt: skip

    def ask(self):
        if self._random.random() < 0.3:
            return Ask(Setting(), self._random.randint(1, 5), self._random.choice([None, self._setting()]))
        return Ask(self._setting())

    def waits(self, setting):
        return self._random.choice([None, 0.0, 0.001])

    def opening(self, prompt):
        assert prompt > 0
        return self._random.choice([None, self._setting()])

    def enough(self, confidences):
        return self._random.randint(0, len(confidences))

    def patience(self, setting):
        return self._random.choice([None, 1.0])

    def stop(self, setting):
        least = [self._random.random() for _ in range(setting.length + 1)]
        return self._random.choice([None, Stop(lambda sure: sure, least)])

    def proposed(self, confidences):
        assert confidences

    def verified(self, length, accepted, confidences):
        assert accepted <= length

    def stepped(self, fact):
        assert fact.whole > 0
        assert 0 <= fact.accepted <= fact.length
        assert fact.source not in ("hit", "partial") or fact.place is not None, "a hit has been named"
        self.facts.append(fact)

    def plained(self, fact):
        assert fact.tokens >= 0 <= fact.beside
        assert fact.ms >= 0 <= fact.beside_ms

    def probed(self, fact):
        assert fact.accepted <= fact.length
        self.facts.append((fact.length, fact.accepted))

    def stretched(self):
        pass

    def failed(self):
        pass

    def answered(self, tokens):
        self.answers.append(tokens)

    def account(self):
        return Account("a whim")


def whimsical(engine, whim):
    engine._policy = lambda: (whim, "")
    return engine
