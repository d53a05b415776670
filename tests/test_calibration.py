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
