"""What calibration makes of the times there are."""

import random
from math import inf
from typing import ClassVar

import pytest

from mirror_mlx.calibration import verifying


class Clocked:
    """A target of which each token takes so many ms, and is submitted before the one before it is read, the first of
    them late."""

    def __init__(self, ms):
        self.ms, self.now = ms, 0.0

    def plain(self, tokens, count, more=lambda: 0):
        done = 0
        self.now += self.ms  # the first of all
        while done < count:
            done += 1
            count += more() if done == count else 0
            late = {1: 0.4, 2: -0.4}.get(done, 0.0) * self.ms
            self.now += self.ms + late if done < count else 0.01  # the next one
            yield 7, None


@pytest.mark.parametrize("ms", [5.0, 100.0])
def test_a_plain_token_takes_what_it_takes_in_the_middle_of_a_text(monkeypatch, ms):
    target, tokens = Clocked(ms), [1]
    monkeypatch.setattr(verifying.time, "perf_counter", lambda: target.now / 1e3)
    assert verifying.plain(target, tokens) == pytest.approx(ms)
    assert len(tokens) - 1 == (7 if ms == 5 else 5)


class Verifying:
    """A target that verifies in 10 ms: another device, or what computes on the core that thinks."""

    def __init__(self, elsewhere):
        self.elsewhere, self.now, self.due, self.rows = elsewhere, 0.0, 0.0, 0

    def clock(self):
        self.now += 0.01
        return self.now / 1e3

    def begin(self, pending, window, tokens, tap=False):
        self.due, self.rows = self.now + 10.0, len(window) + 1

    def proceed(self):
        pass

    def finish(self):
        self.now = max(self.now, self.due) if self.elsewhere else self.now + 10.0
        return [7] * self.rows

    def commit(self, outcome):
        pass


@pytest.mark.parametrize("elsewhere", [True, False])
def test_whether_thinking_slows_the_target_is_measured(monkeypatch, elsewhere):
    target, tokens = Verifying(elsewhere), [1]
    monkeypatch.setattr(verifying.time, "perf_counter", target.clock)
    found = verifying.thought(target, tokens, 3, between=lambda: None)
    assert found == pytest.approx(0.0 if elsewhere else 1.0, abs=0.05)


class Kernels(Clocked):
    """One that verifies as many rows as there are kernels for, and is disturbed: `noise` of what a step takes, at most.
    Who comes after the draft finds caches cold."""

    TAKES: ClassVar = {1: 10.0, 2: 10.5, 3: 12.5, 4: 10.7, 5: 12.5, 6: 12.6, 8: 12.3, 9: 14.1, 12: 14.0, 16: 15.5}

    def __init__(self, noise, seed):
        super().__init__(10.0)
        self.noise, self.chance = noise, random.Random(seed)
        self.rows, self.cold, self.verified = 0, False, 0

    def between(self):
        self.cold = True

    def begin(self, pending, window, tokens, tap=False):
        self.rows = len(window) + 1

    def proceed(self):
        pass

    def finish(self):
        disturbed = 1 + self.chance.uniform(-self.noise, self.noise)
        self.now += self.TAKES[self.rows] * disturbed * (1.1 if self.cold else 1.0)
        self.cold, self.verified = False, self.verified + 1
        return [7] * self.rows

    def commit(self, outcome):
        pass


def measured(monkeypatch, noise, seed=0):
    target = Kernels(noise, seed)
    monkeypatch.setattr(verifying.time, "perf_counter", lambda: target.now / 1e3)
    return target, *verifying.turns(target, [1], verifying.windows(15), target.between, lambda: None)


@pytest.mark.parametrize(("noise", "off"), [(0.0, 1e-6), (0.2, 0.12)])
def test_what_verifications_take_is_found_beside_what_disturbs_them(monkeypatch, noise, off):
    for seed in range(10):
        _, token, rows, spread = measured(monkeypatch, noise, seed)
        assert spread == pytest.approx(noise / 3**0.5, rel=0.4, abs=1e-6)
        assert token == pytest.approx(10.0)
        assert rows == {count: pytest.approx(1.1 * ms, rel=off) for count, ms in Kernels.TAKES.items()}
        assert rows[4] < min(rows[3], rows[5])


def test_where_turns_do_not_agree_there_are_more_of_them(monkeypatch):
    found = [measured(monkeypatch, noise)[0].verified / len(Kernels.TAKES) for noise in (0.0, 0.03, 0.2)]
    assert found == [1 + verifying.REPEATS, 1 + verifying.REPEATS, pytest.approx(1 + verifying.REPEATS + 10, abs=2)]


def test_one_turn_says_nothing_of_how_well_it_is_known():
    turn = {1: 1.0, 4: 1.1}
    assert verifying.unsure([turn], []) == inf
    assert verifying.unsure([turn], [turn]) == 0.0
    assert verifying.by_rows([turn], [{1: 0.8, 4: 0.88}]) == pytest.approx(turn)
