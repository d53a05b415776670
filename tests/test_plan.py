"""`mirror-mlx plan` and `bench auto`: what they say, and what they say of mistakes."""

import itertools
import json
from types import SimpleNamespace

import models
import pytest
import world as worlds

from mirror_mlx.bench import auto, choices, plan, planned, turns
from mirror_mlx.bench.choices import FIXED, points
from mirror_mlx.bench.hostile import KINDS
from mirror_mlx.bench.turns import Settings
from mirror_mlx.cli.main import main
from mirror_mlx.errors import UsageError
from mirror_mlx.messages import Outcome, Window
from mirror_mlx.trace import StepTrace
from mirror_mlx.tuning import paper
from mirror_mlx.tuning.chance import Chance
from mirror_mlx.tuning.machine import Machine, Models, costs
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.throughput import predict

MAC = Machine(bandwidth=800, compute=27, ane_bandwidth=100, ane_compute=15)


def plan_of(capsys, *words):
    assert main(["plan", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_described_machine(capsys):
    found = plan_of(capsys, "--bandwidth", "800", "--target-params", "8B", "--draft-params", "0.6B")
    assert [row["mode"] for row in found["modes"]] == ["ar", "sd", "mirror"]
    plain, serial, mirror = found["modes"]
    assert plain["speed"] == 1
    assert 1 < serial["speed"] < mirror["speed"]
    assert plain["step_ms"] == pytest.approx(8e9 * 2 / (800e9 * 0.7) * 1e3 + 0.3, rel=0.01)
    assert mirror["hit_ms"] < mirror["miss_ms"]
    slow = plan_of(capsys, "--bandwidth", "400", "--target-params", "8B")["modes"][0]
    assert slow["step_ms"] > 1.9 * plain["step_ms"]
    useless = plan_of(capsys, "--bandwidth", "800", "--acceptance", "0", "--hits", "0")
    assert all(row["speed"] <= 1 for row in useless["modes"])


def test_a_pair_on_this_machine(capsys, tmp_path):
    folder = models.pair(tmp_path / "pair")
    found = plan_of(capsys, "--model", str(folder), "--acceptance", "0.5")
    assert found["modes"][0]["mode"] == "ar"
    assert found["costs"]["drafts"]
    assert main(["plan", "--model", str(folder)]) == 0
    assert "plain decoding" in capsys.readouterr().out


def test_the_papers_table(capsys):
    found = plan_of(capsys, "--paper")
    assert len(found["rows"]) == len(paper.TABLE) == 12
    for row in found["rows"]:
        assert 0.5 < row["mirror"] / row["paper_mirror"] < 1.5
        assert row["mirror"] > row["paper_serial"] * 0.9
    assert main(["plan", "--paper"]) == 0
    assert "mathematical reasoning" in capsys.readouterr().out


def test_more_macs_read_faster_and_wait_for_each_other():
    one, eight = (costs(Machine(800, 27, 100, 15, macs=macs), Models(32e9, 64, 6e8)) for macs in (1, 8))
    assert one.plain / 8 < eight.plain < one.plain / 4
    assert costs(MAC, Models(8e9, 36, 6e8, target_bits=4.5)).plain < costs(MAC, Models(8e9, 36, 6e8)).plain / 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bandwidth", "0"], "--bandwidth is 0.0: it must be more than 0"),
        (["--bandwidth", "800", "--macs", "0"], "--macs is 0: it must be 1 or more"),
        (["--acceptance", "1"], "--acceptance is 1.0: it must be in [0, 1)"),
        (["--bandwidth", "800", "--layers", "1"], "--layers is 1: it must be 2 or more"),
        (["--model", "/nowhere"], "/nowhere"),
    ],
)
def test_mistakes_are_one_line(capsys, words, said):
    assert main(["plan", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_hits_never_fall_with_more_roots():
    expected = plan.Expected(0.8, 0.9)
    rates = [expected.hits(count) for count in range(200)]
    assert rates == sorted(rates)
    assert expected.hits(64) == pytest.approx(0.9)


def test_the_sweep_has_thirty_settings():
    assert len(points(Settings(prompts="file"))) >= 30
    assert "ar" in FIXED


def test_some_of_its_settings_are_those_of_its_table():
    every = points(Settings(prompts="file"))
    assert points(Settings(prompts="file"), [12, 3, 12]) == [every[2], every[11]]
    with pytest.raises(UsageError, match=rf"only is 0: .* 1 to {len(every)}"):
        points(Settings(prompts="file"), [1, 0])
    with pytest.raises(UsageError, match=r"only is 17: .* 1 to 16"):
        points(Settings(), [17])


def test_what_is_compared_for_longer_is_known_better():
    until = turns.Until(0.01, 90.0, bar=0.95, doubtful=300.0).longer(4)
    assert until == turns.Until(0.0025, 360.0, bar=0.95, doubtful=1200.0)


def test_its_set_times_are_longer_where_a_machine_does_not_keep_them():
    usual, twice = (points(Settings(prompts="file", scale=scale)) for scale in (1.0, 2.0))
    assert [(2 * one.target_ms, 2 * one.pass_ms) for one in usual] == [(one.target_ms, one.pass_ms) for one in twice]
    assert [one.params for one in usual] == [one.params for one in twice]


def test_hostile_drafts_on_a_tiny_pair(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "_UNTIL", turns.Until(most=0.0))
    folder = models.pair(tmp_path / "pair", says="abcdefghijklmnop.")
    words = ["bench", "auto", "--model", str(folder), "--params", "0", "--limit", "1", "--rounds", "1"]
    assert main([*words, "--max-tokens", "24", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["drafts"]
    assert [row["draft"] for row in rows] == list(KINDS)
    assert all(row["identical"] and row["tokens"] > 0 for row in rows)
    assert main([*words[:-2], "--rounds", "0"]) == 2
    assert "--rounds is 0" in capsys.readouterr().err


def test_the_fastest_are_measured_again_and_so_is_a_hybrid_with_its_parts():
    rates = dict.fromkeys(FIXED, 1.0) | {"auto": 0.1, "sd 3": 9.0, "mirror 4": 8.0, "ar": 7.0, "tap exact 7": 2.0}
    assert choices._finalists(rates) == ["auto", "sd 3", "mirror 4", "ar"]
    assert choices._parts(rates) == ["mirror exact 7", "draft exact 7", "tap exact 7"]
    assert choices._finalists({"ar": 1.0, "mirror 4": 0.5, "auto": 2.0}) == ["auto", "ar"]
    assert choices._parts({"ar": 1.0, "auto": 2.0}) == []


def test_a_hybrid_is_compared_with_the_part_that_was_faster_before():
    found = {
        name: [turns.Answer(10, seconds, (), prompt=n) for n in range(2)]
        for name, seconds in (("mirror exact 7", 1.0), ("draft exact 7", 0.5), ("tap exact 7", 2.0))
    }
    rates = {"draft exact 7": 1.0, "tap exact 7": 2.0}
    assert choices._hybrid(found, rates) == {"hybrid": 2.0, "hybrid_error": 0.0}
    assert choices._hybrid({}, {"ar": 1.0}) == {"hybrid": None, "hybrid_error": None}


def test_a_hybrids_hits_are_compared_with_those_of_the_part_that_has_more():
    def answer(prompt, *ready):
        steps = [SimpleNamespace(next="hit" if one else "jit") for one in (*ready, False)]  # nothing follows the last
        return turns.Answer(10, 1.0, (), prompt=prompt, steps=steps)

    draft, tap = [answer(0, True, False), answer(1, True, True)], [answer(0, False, False), answer(1, True, False)]
    hybrid = [answer(0, True, True), answer(1, True, False)]
    found = {"mirror exact 7": hybrid, "draft exact 7": draft, "tap exact 7": tap}
    assert choices._hits(found, {}) == {"hits": 0.75, "hits_error": 0.5, "draft_hits": 0.75, "tap_hits": 0.25}
    assert choices._hits({"ar": draft}) == dict.fromkeys(("hits", "hits_error", "draft_hits", "tap_hits"))


def test_one_answer_that_was_disturbed_is_no_difference():
    def taking(*seconds):
        return [turns.Answer(10, one, ()) for one in seconds]

    others = taking(2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 200.0)
    assert turns.times_as_fast(taking(*8 * [1.0]), others) == 2
    assert turns.times_as_fast(taking(1.0), taking(3.0)) == 3
    assert turns.uncertainty(taking(1.0), taking(3.0)) is None
    assert turns.uncertainty(taking(1.0, 1.0), taking(3.0, 5.0)) == pytest.approx(1.0)


def test_a_long_prompt_counts_for_its_time():
    def taking(*seconds):
        return [turns.Answer(10, one, (), prompt=prompt) for prompt, one in enumerate(seconds)]

    one, other = taking(1.0, 10.0), taking(2.0, 10.0)
    assert turns.times_as_fast(one, other) == pytest.approx(12 / 11)
    assert turns.uncertainty(one, other) is None
    assert turns.spread(one, other) == pytest.approx(10 / 121 * 2**0.5 * 2**0.5)
    assert turns.spread(one[:1], other[:1]) is None
    assert turns.spread(one, one) == 0
    assert turns.uncertainty([*one, *taking(1.0, 10.0)], [*other, *taking(2.0, 10.0)]) == 0


def test_each_round_has_other_prompts_until_there_are_no_more(tmp_path):
    folder = models.pair(tmp_path / "pair", says="abcdefghijklmnop.")
    lab = turns.Lab(Settings(model=str(folder), params=0, limit=2), more=5)
    assert list(lab.first) == [0, 1]
    assert [lab.round(number) for number in range(3)] == [[2, 3], [4, 5], [6, 2]]
    alone = turns.Lab(Settings(model=str(folder), params=0, limit=2))
    assert alone.round(1) == [0, 1]


@pytest.mark.parametrize(
    ("seconds", "bar", "rounds"),
    [
        ((2.0, 2.0), 2.0, 30), ((1.0, 3.0), None, 60),
        ((1.0, 3.0), 1.95, 90), ((1.0, 3.0), 1.5, 60), ((1.0, 3.0), 2.5, 60),
    ],
)  # fmt: skip
def test_the_fastest_are_compared_on_other_prompts_until_that_is_known(seconds, bar, rounds, monkeypatch):
    """Of prompts that one of two engines takes as long for, one round a second; and of such as it does not."""
    asked, clock = [], itertools.count()

    def answered(engine, prompt, lab):
        asked.append((engine, prompt))
        return turns.Answer(10, seconds[prompt % 2] if engine == "slow" else 1.0, ())

    lab = SimpleNamespace(
        first=[0, 1], round=lambda number: [2 + 2 * number, 3 + 2 * number], asked=range(1000), settings=Settings()
    )  # fmt: skip
    monkeypatch.setattr(turns.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(turns, "answered", answered)
    until = turns.Until(precise=0.015, most=60.0, bar=bar, doubtful=90.0)
    engines = {"quick": "quick", "slow": "slow"}
    turns.in_turn(engines, lab, 2, lambda *_: None, against="quick", until=until, others=True)
    assert sorted(asked) == [(one, prompt) for one in ("quick", "slow") for prompt in range(2, 2 + len(asked) // 2)]
    assert len(asked) == pytest.approx(4 * rounds, abs=8)


def test_a_sweep_is_kept_and_goes_on(capsys, tmp_path, monkeypatch):
    fixed = {name: FIXED[name] for name in ("ar", "sd 3", "mirror main 4")}
    monkeypatch.setattr(choices, "FIXED", fixed)
    monkeypatch.setattr(choices, "TARGETS", ((0, 1.0),))
    monkeypatch.setattr(choices, "PACES", (0.0,))
    monkeypatch.setattr(choices, "_FINAL", turns.Until(most=0.0))
    folder, out = models.pair(tmp_path / "pair", says="abcdefghijklmnop."), tmp_path / "out"
    words = ["bench", "auto", "--sweep", "--model", str(folder), "--limit", "1", "--rounds", "1", "--json"]
    words += ["--max-tokens", "16"]
    measured, calls = choices._measured, []

    def stopped(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measured(*args)

    monkeypatch.setattr(choices, "_measured", stopped)
    assert main([*words, "--out", str(out)]) == 130
    capsys.readouterr()
    assert main([*words, "--out", str(out), "--only", "1"]) == 0
    assert [row["temperature"] for row in json.loads(capsys.readouterr().out)["settings"]] == [0.0]
    assert main([*words, "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(calls) == 3
    assert found["resumed"] == 2
    assert [row["temperature"] for row in found["settings"]] == [0.0, 1.0]
    for row in found["settings"]:
        assert row["identical"]
        assert set(row["plan"]["settings"]) == set(fixed)
        assert set(row["rates"]) == {*fixed, "auto"} >= set(row["final_rates"]) > {"auto"}
        others = [rate for name, rate in row["final_rates"].items() if name != "auto"]
        assert row["share"] == pytest.approx(row["auto"] / max(others), rel=0.01)
    assert main([*words, "--out", str(out), "--seed", "1"]) == 2
    assert "seed was 0 and is 1" in capsys.readouterr().err
    assert main([*words[:2], "--model", str(folder), "--out", str(out)]) == 2
    assert "choose one of them" in capsys.readouterr().err
    assert main([*words, "--only", "9"]) == 2
    assert "--only is 9: with these prompts a sweep has settings 1 to 2" in capsys.readouterr().err
    assert main([*words[:2], "--model", str(folder), "--only", "1"]) == 2
    assert "say that, too" in capsys.readouterr().err
    lines = (out / choices.NAME).read_text().splitlines()
    (out / choices.NAME).write_text(f"{lines[0]}\n{{}}\n")
    assert main([*words, "--out", str(out)]) == 2
    assert "line 2: it is damaged" in capsys.readouterr().err


def test_a_prediction_is_compared_by_rate_and_by_the_time_of_a_step():
    """Two settings that propose alike: what holds is what held in both of them, and a step takes what it takes."""
    known = worlds.costs(one=10.0, plain=20.0)

    def measured(length, held, factor):
        setting = Setting("sd", length, length)
        said = predict(known, setting, Chance([1.0]))
        steps = [
            StepTrace(at, Window(tuple(range(length)), "jit"), Outcome(accepted, 0), mode="sd")
            for at, accepted in enumerate(held)
        ]
        return planned.Measured(setting, steps, factor * said.step * len(held) / 1e3)

    found = planned.compared({"short": measured(2, [2] * 6, 1.0), "long": measured(4, [4, 4, 1], 1.25)}, known)
    assert found["settings"]["short"]["step"] == pytest.approx(1.0)
    assert found["settings"]["long"]["step"] == pytest.approx(0.8)
    assert found["settings"]["short"]["predicted"] < found["settings"]["short"]["measured"]
    assert found["error"] == max(planned.errors(found["settings"]))
