"""What calibration has been wrong about is found out by decoding."""

from dataclasses import replace
from itertools import groupby

import world as worlds
from world import REACH, World, play

from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.governor import Governor
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.varying import Varying

WAY = (2, False)
ROWS = {1: 150.0, 2: 152.0, 4: 155.0, 5: 185.0, 6: 188.0, 8: 192.0, 9: 215.0, 12: 220.0, 16: 235.0}  # kernels for four
SEEDS = range(5)


def costs(rows):
    return replace(worlds.costs(one=60.0, tokens=3.0, way=WAY), verify=Curve.through(rows))


def share(world, length, calibrated):
    """Of steps in windows of that length, once there were some hundred."""
    _, said = play(Governor(calibrated, REACH, {WAY: world.alpha}), world, 6000)
    late = [setting.length for setting, _ in said[len(said) // 2 :]]
    return late.count(length) / len(late)


def test_rows_that_were_calibrated_as_dearer_than_they_are_come_to_be_known():
    """Windows of five seem to be better, and are worse: who has never verified four rows never knows."""
    dearer = costs({**ROWS, 2: 1.12 * ROWS[2], 4: 1.12 * ROWS[4]})
    found = [share(World(costs(ROWS), 0.75, seed=seed), 3, dearer) for seed in SEEDS]
    assert sum(found) / len(found) > 0.7


def test_a_draft_that_is_left_out_is_asked_for_several_windows_in_a_row():
    """The first step has none yet, and what is to be found out is how often proposals hold."""
    alone = Setting("sd", 3, 0, way=WAY)
    varying, done, lost = Varying(REACH, [WAY]), [], 0.05
    for _ in range(2000):
        other = varying.next(alone, lambda setting: 1.0 if setting.alone else 0.95, 1)
        done.append(other)
        if other is not None:
            varying.took(other, lost)
    beside = [
        sum(1 for _ in of) for there, of in groupby(one is not None and one.mode == "mirror" for one in done) if there
    ]
    assert len(beside) > 10
    assert set(beside[:-1]) == {8}
    assert sum(beside) * lost < 0.011 * len(done)  # of the time is lost by it
