"""What calibration makes of the times there are."""

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
