"""Where a draft runs, played out in a world of numbers in which it may be in two places."""

import world as worlds
from world import REACH, World, play

from mirror_mlx.tuning.choice import best
from mirror_mlx.tuning.governor import Governor
from mirror_mlx.tuning.moving import Moving


class Hosts(World):
    """One that knows the draft on two hosts: home is as the world is, the other one takes twice as long."""

    def __post_init__(self):
        super().__post_init__()
        self.away = worlds.costs(one=40.0)

    def at(self, host):
        return self.costs if host in ("", "home") else self.away


def moving(world, tokens, events, holds=0.8):
    home = Governor(world.costs, REACH, {(0, False): holds})
    away = Governor(world.costs, REACH, {(0, False): holds}, known=False)
    policy = Moving({"home": home, "away": away})
    return policy, *play(policy, world, tokens, events)


def test_a_draft_moves_away_from_a_slow_host_and_back():
    world = Hosts(worlds.costs(one=20.0), 0.8)
    events = {300: lambda w: w.load(draft=60.0), 1500: lambda w: w.load(draft=1 / 60)}
    policy, _, said = moving(world, 3000, events)
    before, loaded, after = said[:300], said[500:1500], said[2200:]
    assert {setting.host for setting, _ in before if setting.mode != "ar"} == {"home"}
    assert {setting.host for setting, _ in loaded if setting.mode != "ar"} == {"away"}
    assert {setting.host for setting, _ in after if setting.mode != "ar"} == {"home"}
    for part, costs in ((loaded, world.away), (after, world.costs)):
        rate = best(costs, REACH, lambda setting: world)[1].rate
        assert len(part) / sum(ms for _, ms in part) > 0.85 * rate
    moves = [line for line in policy.account().tried if "is moved to" in line]
    assert moves == [
        "home: plain decoding: the draft is moved to away", "away: plain decoding: the draft is moved to home"
    ]  # fmt: skip


def test_a_draft_that_pays_nowhere_stays_and_costs_next_to_nothing():
    world = Hosts(worlds.costs(one=20.0), 0.02)
    events = {300: lambda w: w.load(draft=60.0)}
    _, ms, _ = moving(world, 1500, events, holds=0.5)
    assert ms < 1.02 * 1500 * world.costs.plain


def test_a_host_on_which_the_draft_dies_is_left():
    class Dies(Hosts):
        def step(self, setting, stop=None):
            self.kills = 2 if setting.host == "home" else 0
            return super().step(setting, stop)

    world = Dies(worlds.costs(one=20.0), 0.8)
    _, ms, said = moving(world, 400, {})
    hosts = [setting.host for setting, _ in said if setting.mode != "ar"]
    assert hosts[0] == "home"
    assert set(hosts[100:]) == {"away"}
    assert ms < 0.5 * 400 * world.costs.plain
