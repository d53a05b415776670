"""Which passes are worth beginning, and what a timetable learns of outcomes and passes."""

import pytest
import world as worlds
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.tuning.beside import worthwhile
from mirror_mlx.tuning.due import Timetable
from mirror_mlx.tuning.policy import Passed, Stepped
from mirror_mlx.tuning.setting import Setting

SETTING = Setting("mirror", 7, 7, 16, "draft", way=(2, True))


@given(
    room=st.floats(-5, 60),
    most=st.integers(1, 64),
    one=st.floats(1, 30),
    each=st.floats(0, 5),
    miss=st.floats(0.1, 0.9),
)
def test_no_pass_is_begun_that_costs_more_than_it_saves(room, most, one, each, miss):
    def takes(count):
        return one + each * count

    def worth(count):
        return (1 - miss**count) * takes(1) - max(0.0, takes(count) - room) if count else 0.0

    count = worthwhile(room, 1.0, most, takes, lambda n: 1 - miss**n, takes(1))
    assert 0 <= count <= most
    assert worth(count) >= 0
    assert worth(count) >= max(worth(1), worth(most)) - 1e-9
    if takes(most) <= room:
        assert count == most


def step(known=25.0, wide=20.0, single=10.0, place=0, setting=SETTING, length=7):
    passes = [Passed(wide, 10.0, beside=True), Passed(single, 1.0), Passed(single, 1.0, rows=1)]
    return Stepped(setting, length, 2, target=known, whole=60.0, opened=16, place=place, passed=passes, known=known)


def learnt(*facts):
    times = Timetable()
    for fact in facts:
        times.saw(fact)
    return times


def test_a_timetable_learns_when_outcomes_come_and_what_passes_take():
    assert Timetable().of(7, SETTING) is None
    times = learnt(*[step() for _ in range(30)])
    due = times.of(7, SETTING)
    assert due.at == pytest.approx(25.0)
    assert [due.one.at(count) for count in (1, 10)] == pytest.approx([10.0, 20.0], rel=0.02)
    assert due.hits(1) > 0.8
    assert times.of(7, Setting("mirror", 7, 7, 16, "draft", way=(0, False))) is None, "another way to propose"
    another = times.of(7, Setting("mirror", 7, 7, 16, "tap", way=(2, True)))
    assert (another.at, another.one) == (due.at, due.one)
    assert another.hits(1) < due.hits(1)


def test_of_windows_of_other_lengths_it_thinks_what_lies_between():
    times = learnt(*[step(known=20.0 + 2 * length, length=length) for _ in range(40) for length in (2, 8)])
    assert [times.of(length, SETTING).at for length in (2, 5, 8)] == pytest.approx([24.0, 30.0, 36.0], rel=0.03)


def test_a_device_that_becomes_slow_is_believed_soon_for_all_counts():
    times = learnt(*[step() for _ in range(30)], *[step(known=75.0, single=40.0, wide=80.0) for _ in range(4)])
    due = times.of(7, SETTING)
    assert due.at == pytest.approx(75.0, rel=0.1)
    assert due.one.at(1) == pytest.approx(40.0, rel=0.2)
    assert due.one.at(10) == pytest.approx(80.0, rel=0.2)


def test_a_single_interruption_hardly_counts():
    times = learnt(*[step() for _ in range(30)], step(known=900.0, wide=900.0))
    due = times.of(7, SETTING)
    assert due.at < 1.2 * 25
    assert due.one.at(10) < 1.4 * 20


def test_what_nothing_was_seen_of_is_expected_to_take_what_calibration_says():
    times, costs = Timetable(), worlds.costs(one=15.0, plain=40.0, way=SETTING.way)
    times.expect(costs)
    due = times.of(7, SETTING)
    assert due.at == pytest.approx(costs.verify.at(8) * costs.slower)
    assert due.one.at(1) == pytest.approx(15.0)
    for _ in range(30):
        times.saw(step(known=25.0))
    seen = times.of(7, SETTING)
    times.expect(costs)
    assert seen.at == pytest.approx(25.0, rel=0.02)
    assert times.of(7, SETTING) == seen


def test_steps_in_turns_tell_how_fast_the_target_is():
    """Else the first step beside it, amid others in turns, takes the target to be as calibrated."""
    costs = worlds.costs(one=15.0, plain=40.0, way=SETTING.way)
    turns = Setting("sd", 7, 7, way=SETTING.way)
    usual = costs.verify.at(8) * costs.slower
    for setting, known in ((turns, 1.4 * usual), (Setting("sd", 7, 0, way=SETTING.way), 0.0)):
        times = Timetable()
        times.expect(costs)
        for _ in range(30):
            times.saw(Stepped(setting, 7, 2, target=1.4 * usual, whole=90.0, known=known))
        assert times.of(7, SETTING).at == pytest.approx(1.4 * usual, rel=0.02)


def test_less_than_was_ever_seen_is_tried():
    """A draft whose passes have all been wide does not know what a narrow one takes: where that is never tried, all
    remain wide."""
    wide = Stepped(SETTING, 7, 2, target=12.0, whole=25.0, opened=16, place=0, passed=[Passed(14.0, 10)], known=12.0)
    due = learnt(*[wide] * 5).of(7, SETTING)
    assert due.one.at(10) == pytest.approx(14.0)
    assert due.one.at(1) < 10.0
    narrow = Stepped(SETTING, 7, 2, target=12.0, whole=25.0, opened=16, place=0, passed=[Passed(13.0, 1)], known=12.0)
    assert learnt(*[wide] * 5, *[narrow] * 20).of(7, SETTING).one.at(1) == pytest.approx(13.0, rel=0.05)
