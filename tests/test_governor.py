"""What is done next, played out in a world of numbers: no regret."""

from dataclasses import replace
from itertools import pairwise, product
from statistics import fmean, median

import pytest
import world as worlds
from world import REACH, TOKENS, Busy, World, governed, play

from mirror_mlx.tuning.choice import best
from mirror_mlx.tuning.governor import Governor
from mirror_mlx.tuning.policy import Fixed, Probed, Stepped
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.tally import Plained
from mirror_mlx.tuning.throughput import Prediction


@pytest.mark.parametrize("one", [5.0, 20.0, 200.0, 2000.0])
@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("holds", [0.02, 0.6, 0.95])
def test_a_hostile_draft_costs_next_to_nothing(one, alpha, holds):
    """Whatever calibration believed of it."""
    world = World(worlds.costs(one, rows=0.05), alpha)
    _, ms, _ = governed(world, holds=holds)
    plain = TOKENS * world.costs.plain
    assert ms <= 1.03 * plain


@pytest.mark.parametrize(("one", "alpha"), [(10.0, 0.4), (20.0, 0.6)])
def test_where_speculation_nearly_pays_trying_and_asking_cost_half_of_a_hundredth_at_most(one, alpha):
    """A fast target, and a draft whose passes take longer than a token and slow it. Once the first tries are over."""
    costs, lost = replace(worlds.costs(one, 7.0, tokens=3.0, rows=0.15), slower=1.2), []
    for seed in range(8):
        world = World(costs, alpha, hindered=1.2, noise=0.1, seed=seed)
        _, _, said = governed(world, tokens=3600, holds=alpha)
        lost.append(sum(ms for _, ms in said[600:]) / (3000 * costs.plain) - 1)
    assert fmean(lost) < 0.005


@pytest.mark.parametrize("hindered", [1.1, 1.5, 2.0])
def test_a_draft_that_slows_plain_decoding_is_asked_for_less(hindered):
    """Whoever shares the interpreter or the memory with it."""
    costs = worlds.costs(60.0, 10.0)
    world = World(costs, 0.2, hindered=hindered)
    governor = Governor(replace(costs, slower=1.0), REACH, {(0, False): 0.2})
    ms, said = play(governor, world, 4000)
    assert all(setting.mode == "ar" for setting, _ in said)
    assert ms < 1.025 * 4000 * costs.plain  # 1.4 with a probe in every stretch, at worst


@pytest.mark.parametrize(("alpha", "rows"), [(0.97, 0.08), (0.97, 0.2), (0.99, 0.3)])
def test_nor_for_that_if_what_it_says_holds(alpha, rows):
    """Calibration has seen few of its proposals, and took it for too bad."""
    costs, begun = replace(worlds.costs(10.0, 6.0, tokens=3.0, rows=rows), slower=1.2), []
    for seed in range(12):
        world = World(costs, alpha, hindered=1.2, seed=seed)
        _, _, said = governed(world, holds=0.3)
        begun.append(next((at for at, (setting, _) in enumerate(said) if setting.mode != "ar"), TOKENS))
    assert all(begun)  # plainly, at first
    assert median(begun) < 40


def test_a_target_that_has_recovered_is_not_taken_for_a_slow_one():
    """Speculation seemed to pay while something slowed the target down; it does not say so by itself."""
    costs = worlds.costs(20.0, 7.0, tokens=3.0)
    world = World(costs, 0.8, noise=0.02)
    governor = Governor(costs, REACH, {(0, False): 0.8})
    assert governor.parked
    _, said = play(governor, world, 900, {100: lambda w: w.load(target=1.6), 400: lambda w: w.load(target=1 / 1.6)})
    assert any(setting.mode != "ar" for setting, _ in said[200:400])
    assert sum(setting.mode != "ar" for setting, _ in said[500:]) < 40


def test_a_draft_that_dies_again_and_again_costs_next_to_nothing():
    world = World(worlds.costs(), 0.0, kills=5)
    _, ms, _ = governed(world, holds=0.9)
    assert ms <= 1.03 * TOKENS * world.costs.plain


@pytest.mark.parametrize("alpha", [0.5, 0.7, 0.85])
@pytest.mark.parametrize("one", [5.0, 20.0, 60.0])
def test_a_good_draft_is_used_nearly_as_well_as_can_be(alpha, one):
    world = World(worlds.costs(one), alpha)
    _, ms, _ = governed(world)
    rate = best(world.costs, REACH, lambda setting: world)[1].rate
    assert TOKENS / ms > 0.88 * rate


def test_a_load_on_the_target_is_no_reason_to_stop():
    world = World(worlds.costs(), 0.8)
    events = {150: lambda w: w.load(target=2.0), 300: lambda w: w.load(target=0.5)}
    governor, _, said = governed(world, tokens=450, events=events)
    assert not governor.parked
    loaded = [ms for _, ms in said[170:300]]
    assert sum(loaded) / len(loaded) < 300  # ms a token, which is what plain decoding takes then
    assert sum(setting.mode == "mirror" for setting, _ in said[320:]) > 100


def test_a_load_on_the_draft_is_noticed_and_so_is_its_end():
    means = []
    for seed in range(8):
        world = World(worlds.costs(one=20.0), 0.45, seed=seed)
        events = {200: lambda w: w.load(draft=40.0), 500: lambda w: w.load(draft=1 / 40)}
        governor, _, said = governed(world, tokens=1000, events=events)
        means.append([fmean(ms for _, ms in part) for part in (said[100:200], said[230:500], said[800:])])
        assert means[-1][1] < 1.04 * world.costs.plain
        assert not governor.parked
    before, _, after = (fmean(part) for part in zip(*means, strict=True))
    assert after < 1.06 * before


@pytest.mark.parametrize(("device", "factor"), [("target", 2.0), ("target", 3.0), ("draft", 2.0), ("draft", 4.0)])
@pytest.mark.parametrize(("one", "alpha"), [(20.0, 0.85), (20.0, 0.6), (10.0, 0.8)])
def test_after_a_load_it_is_soon_as_fast_as_without_one(device, factor, one, alpha):
    """One that lasted for 80 tokens, from 20 tokens after it on; mean of some runs. To begin again has its price."""

    def after(seed, loads):
        world = World(worlds.costs(one, 50.0, rows=0.02), alpha, seed=seed)
        _, _, said = governed(world, tokens=580, events=loads)
        return sum(ms for _, ms in said[500:])

    comes, goes = (lambda w: w.load(**{device: factor})), (lambda w: w.load(**{device: 1 / factor}))
    alone, loaded = (sum(after(seed, loads) for seed in range(16)) for loads in ({}, {400: comes, 480: goes}))
    assert loaded < 1.12 * alone


def test_devices_that_are_slow_for_a_while_and_texts_that_differ():
    """A hard text, or a slow second, is no reason to leave the draft out for good."""

    def hits(count):
        return 0.6 * (1 - 0.6 * max(count, 1) ** -0.7) if count else 0.0

    def played(policy, seed):
        world = Busy(worlds.costs(20.0, 40.0, 3.0, 0.02, (2, False)), 0.6, hits, 0.08, seed, lookup=0.13)
        return play(policy or Governor(world.usual, REACH, {(2, False): 0.6}, backup=True), world, 1200, answer=60)[0]

    plain, windows = Fixed(Setting("ar")), Fixed(Setting("mirror", 3, 3, 8, "draft", way=(2, False)))
    times = [(played(None, seed), played(plain, seed), played(windows, seed)) for seed in range(12)]
    assert all(ms < 1.03 * alone for ms, alone, _ in times)
    assert fmean(best / ms for ms, _, best in times) > 0.94


def test_text_that_becomes_predictable_brings_speculation_back():
    world = World(worlds.costs(), 0.0)
    _, _, said = governed(world, tokens=600, events={200: lambda w: setattr(w, "alpha", 0.9)}, holds=0.05)
    assert {setting.mode for setting, _ in said[20:200]} == {"ar"}
    assert sum(setting.mode == "mirror" for setting, _ in said[400:]) > 180


@pytest.mark.parametrize("seed", range(6))
def test_a_text_that_begins_to_repeat_itself_brings_a_lookup_back(seed):
    """Beside a draft that is always wrong, and seen amid plain decoding."""
    world = World(worlds.costs(20.0), 0.0, hits=lambda count: 0.0, lookup=0.0, seed=seed)
    _, _, said = governed(world, tokens=1200, events={600: lambda w: setattr(w, "lookup", 0.8)}, holds=0.02)
    plain = world.costs.plain
    assert sum(took for _, took in said[:600]) < 1.03 * 600 * plain
    assert sum(setting.alone for setting, _ in said[800:]) > 350


@pytest.mark.parametrize(("factor", "seed"), [*product((4.0, 10.0), range(3))])
def test_a_draft_that_is_left_out_while_its_device_is_slow_is_used_again(factor, seed):
    world = World(worlds.costs(20.0, 40.0), 0.85, lookup=0.5, seed=seed)
    events = {400: lambda w: w.load(draft=factor), 800: lambda w: w.load(draft=1 / factor)}
    _, _, said = governed(world, tokens=1500, events=events, holds=0.85)
    done = [setting for setting, _ in said]
    assert sum(setting.alone for setting in done[500:800]) > 50
    assert sum(setting.mode == "mirror" for setting in done[1150:]) > 320


@pytest.mark.parametrize("holds", [0.02, 0.9])
def test_what_a_lookup_would_have_had_anywhere_counts_until_the_draft_is_used(holds):
    costs = worlds.costs(20.0, rows=0.5)
    governor = Governor(costs, REACH, {(0, False): holds}, backup=True)
    before = governor._beliefs.of(governor.setting).backup(4)
    governor.plained(Plained(16, 16 * costs.plain, offers=((4, 4),) * 30))
    assert governor.parked == (holds < 0.5)
    assert (governor._beliefs.of(governor.setting).backup(4) > before) == governor.parked


def test_a_step_that_ends_after_speculation_was_given_up_changes_nothing():
    world = World(worlds.costs(one=10.0), 0.95)
    policy = Governor(world.costs, REACH, {(0, False): 0.9})
    setting = policy.ask().setting
    for _ in range(3):
        policy.stepped(world.step(setting))
    policy.failed()
    for _ in range(40):
        policy.stepped(world.step(setting))
        assert policy.parked
    assert policy.ask().plain > 0


def test_windows_are_cut_where_a_row_costs_more_than_it_brings():
    flat, steep = (Governor(worlds.costs(rows=rows), REACH, {(0, False): 0.8}) for rows in (0.001, 0.6))
    sure = [0.95, 0.9, 0.3, 0.2, 0.2]
    assert flat.enough(sure) >= 4
    assert steep.enough(sure) < 3
    assert steep.enough([0.99] * 5) >= steep.enough(sure)
    assert flat.enough([]) == 0


def test_a_request_that_begins_with_a_wait_has_lost_that_time():
    """The end of the prompt is plain decoding's to do as well; to wait for the draft is not."""
    world, lost = World(worlds.costs(), 0.8), []
    for waited in (0.0, 500.0):
        governor = Governor(world.costs, REACH, {(0, False): 0.8})
        target = 40.0 + world.costs.verify.at(8)
        fact = Stepped(governor.setting, 7, 0, target=target, whole=target + waited, opening=True, waited=waited)
        governor.stepped(fact)
        lost.append(governor._budget.lost)
    assert lost[1] - lost[0] == pytest.approx(500.0)
    assert lost[0] == pytest.approx(world.costs.verify.at(8) - world.costs.plain)


def test_plain_decoding_is_seldom_measured_amid_speculation_that_pays():
    world = World(worlds.costs(), 0.85)
    governor, _, said = governed(world, tokens=8000)
    assert 6 <= sum(setting.mode == "ar" for setting, _ in said) < 60
    assert not governor.drifted


@pytest.mark.parametrize(("alpha", "seed"), [(0.8, 6), (0.8, 7), (0.8, 9), (0.95, 3), (0.95, 9)])
def test_a_stretch_of_plain_decoding_that_was_fast_is_no_reason_to_give_up_what_pays(alpha, seed):
    world = World(worlds.costs(one=10.0, plain=50.0, rows=0.003), alpha, noise=0.1, seed=seed)
    governor, _, _ = governed(world, tokens=6000, holds=alpha)
    assert governor.gain > 2
    assert not [why for why in governor.account().tried if why.startswith("plain decoding")]


def test_the_first_window_is_as_long_as_the_prompt_leaves_time_for():
    quick, slow = (Governor(worlds.costs(one), REACH, {(0, False): 0.8}) for one in (10.0, 140.0))
    assert quick.setting.mode == "mirror"
    assert quick.setting.late < quick.opening(500).late == quick.setting.length
    assert quick.opening(1).late <= quick.opening(500).late
    assert slow.opening(500) == slow.ask().ahead
    parked = Governor(worlds.costs(10.0), REACH, {(0, False): 0.01})
    assert parked.ask().probe is not None
    assert parked.opening(500) is None  # it is asked beside the plain tokens that come first


def test_the_first_window_is_waited_for_where_plain_decoding_would_not_be_as_far():
    quick = Governor(worlds.costs(10.0), REACH, {(0, False): 0.8})
    first = quick.opening(500)
    passes = quick.costs.drafts[0, False].passes(first.late, first.length)
    assert quick.waits(first) == pytest.approx(1.5 * 0.01 * passes + quick.costs.plain / 1e3)
    for _ in range(2):
        quick.probed(Probed((0, False), 4, 4, one_pass=2000.0))
    quick._observed.rescale()
    assert quick.waits(first) == 0


def test_where_a_lookup_alone_is_best_the_draft_is_asked_for_what_takes_it_least():
    """Else its streams are never compared, and never found to be better."""
    costs = worlds.costs(20.0, 7.0)
    streams = replace(costs.drafts[0, False], tokens=3.0)
    drafts = {(0, False): costs.drafts[0, False], (2, False): streams, (2, True): streams}
    governor = Governor(replace(costs, drafts=drafts), REACH, {(0, False): 0.01}, backup=True)
    governor._wish.setting = Setting("sd", 2, 0, way=(0, False))
    assert governor._wish.setting.alone
    probe = governor.probe
    assert (probe.way, probe.length, probe.late) == ((2, False), 3, 3)
    governor._wish.setting = Setting("mirror", 8, 8, 8, "draft", way=(0, False))
    assert governor.probe.way == (0, False)


def test_after_a_probe_that_holds_the_next_stretch_is_a_short_one():
    governor = Governor(worlds.costs(10.0), REACH, {(0, False): 0.01})
    for _ in range(4):
        governor.stretched(may=False)
    assert governor.ask().plain > 8
    governor.probed(Probed((0, False), 4, 4, one_pass=30.0))
    assert governor.ask().plain <= 8


def test_a_stretch_goes_on_in_the_next_request():
    """Who answers in few tokens gets to the end of it as well, and asks the draft once."""
    governor = Governor(worlds.costs(10.0), REACH, {(0, False): 0.01})
    governor.stretched()
    whole = governor.ask()
    assert whole.plain > 10
    assert whole.probe is not None
    governor.plained(Plained(8, 8 * governor.costs.plain))
    assert governor.ask().plain == whole.plain - 8
    assert governor.ask().probe is not None
    governor.probed(Probed((0, False), 4, 0))
    assert governor.ask().probe is None
    governor.plained(Plained(80, 80 * governor.costs.plain))
    assert governor.ask().plain == 1
    governor.stretched()
    assert governor.ask().plain >= whole.plain
    assert governor.ask().probe is not None


def test_windows_that_hold_are_followed_up_less_soon_where_that_came_to_nothing():
    governor = Governor(worlds.costs(10.0), REACH, {(0, False): 0.01})
    lengths = []
    for _ in range(5):
        for _ in range(4):
            governor.stretched(may=False)
        governor.probed(Probed((0, False), 4, 3))
        governor.stretched(may=False)
        lengths.append(governor.ask().plain)
        governor.park("it did not pay")
    assert lengths == [8, 8, 16, 32, 64]


@pytest.mark.parametrize("thought", [0.0, 1.0])
def test_a_step_that_is_done_otherwise_is_done_once(thought):
    """It is decided during one step, done as the next, and told of during the one after."""
    world = World(replace(worlds.costs(10.0, 22.0), thought=thought), 0.85)
    governor, last, otherwise = Governor(world.costs, REACH, {(0, False): 0.85}), None, []
    for _ in range(600):
        ask = governor.ask()
        if ask.plain:
            governor.stretched()
            continue
        otherwise.append(ask.setting != governor.setting)
        if last is not None:
            governor.stepped(last)
        last = world.step(ask.setting)
    assert sum(otherwise) >= 4
    assert not any(one and other for one, other in pairwise(otherwise))


def test_what_is_tried_and_is_nearly_as_good_is_remembered_and_what_is_not_is_forgotten(monkeypatch):
    world = World(replace(worlds.costs(10.0, 22.0), thought=1.0), 0.7)
    governor = Governor(world.costs, REACH, {(0, False): 0.7})
    play(governor, world, 300)
    course, estimates, done = governor._course, governor._estimates, governor.setting
    said, share = estimates.of, {}
    monkeypatch.setattr(course._lookout, "begin", lambda *of, **how: None)
    monkeypatch.setattr(course._lookout, "changed", lambda rate: False)

    def of(setting):
        found = said(done)
        return replace(found, tokens=found.tokens * share.get(setting.length, 1.0))

    monkeypatch.setattr(estimates, "of", of)
    for length, expected in ((15, 0.97), (11, 0.9)):
        tried = replace(done, length=length, late=length)
        share[length] = expected
        governor.stepped(world.step(tried))
        assert governor.setting == done
        assert (tried in course._rivals) == (expected > 0.95)
    share[15] = 1.02
    play(governor, world, 40)
    assert governor.setting.length == 15


def test_what_was_done_before_is_done_again_as_soon_as_it_is_better(monkeypatch):
    """Where it is looked for others by and by: no search says so here."""
    world = World(replace(worlds.costs(10.0, 22.0), thought=1.0), 0.7)
    governor = Governor(world.costs, REACH, {(0, False): 0.7})
    play(governor, world, 300)
    done, estimates, course = governor.setting, governor._estimates, governor._course
    said, lookout = estimates.of, course._lookout
    other = replace(done, length=3, late=3)
    course._rivals, better = [other], other
    monkeypatch.setattr(lookout, "begin", lambda *of, **how: None)
    monkeypatch.setattr(lookout, "changed", lambda rate: False)

    def twice(setting):
        found = said(setting)
        return replace(found, tokens=found.tokens * (2 if setting == better else 1))

    monkeypatch.setattr(estimates, "of", twice)
    for better in (other, done):
        play(governor, world, 40)
        assert governor.setting == better


@pytest.mark.parametrize(("share", "taken"), [(0.85, False), (0.95, True)])
def test_a_try_that_seems_to_fail_goes_on_otherwise_only_where_that_is_nearly_as_fast(monkeypatch, share, taken):
    costs = replace(worlds.costs(10.0, 22.0), thought=1.0)
    governor = Governor(costs, REACH, {(0, False): 0.3})
    course, tried, other = governor._course, Setting("sd", 3, 3), Setting("mirror", 3, 3, 8, "draft")
    rates = {tried: 0.5, other: share}

    def said(setting):
        return Prediction(step=costs.plain, tokens=rates.get(setting, 0.1))

    monkeypatch.setattr(governor._estimates, "of", said)
    course.begins(tried, said(tried))
    course._rivals = [other]
    course.judge(early=True)
    assert course.setting == (other if taken else tried)
