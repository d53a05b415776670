"""The latency law: as a formula, and laid beside what is measured."""

import json

import models
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.bench import law as laws
from mirror_mlx.bench.equation import Parts, law
from mirror_mlx.bench.figures import Step
from mirror_mlx.bench.sweep import FACTORS, compared, points
from mirror_mlx.cli.main import main
from mirror_mlx.errors import UsageError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.pair(tmp_path_factory.mktemp("pair"), draft={"seed": 1})


TIMES = st.floats(0.5, 500)
PARTS = st.builds(Parts, TIMES, st.none() | TIMES, st.floats(0.1, 50), st.integers(1, 12))


@given(PARTS, st.floats(0, 1), st.booleans())
def test_a_step_is_between_its_kinds_and_no_shorter_than_verification(parts, hit_rate, own):
    if parts.tap is None and not own:
        return
    said = law(parts, hit_rate, own=own)
    assert said.hit >= parts.verify - 1e-6
    assert said.miss >= parts.verify + parts.passes * parts.one_pass - 1e-6
    assert min(said.hit, said.miss) - 1e-6 <= said.mean <= max(said.hit, said.miss) + 1e-6


@given(PARTS, st.floats(0, 1))
def test_what_fits_costs_a_verification(parts, hit_rate):
    said = law(parts, hit_rate)
    if max(said.own, said.tapped) <= parts.verify:
        assert said.hit == pytest.approx(parts.verify)
        assert said.miss == pytest.approx(max(parts.verify, parts.one_pass) + parts.passes * parts.one_pass)


@given(PARTS, st.floats(0, 1), st.floats(1.01, 3))
def test_slower_parts_make_no_step_shorter(parts, hit_rate, factor):
    slower = Parts(parts.verify, parts.tap, parts.one_pass, parts.passes + 1)
    assert law(slower, hit_rate).mean >= law(parts, hit_rate).mean - 1e-6
    assert (
        law(Parts(parts.verify * factor, parts.tap, parts.one_pass, parts.passes), hit_rate).hit >= parts.verify - 1e-6
    )


def test_a_tap_in_the_middle_of_a_pass_waits_for_its_end():
    said = law(Parts(verify=100, tap=25, one_pass=10, passes=4), 1.0)
    assert (said.own, said.tapped) == (50, 70)
    alone = law(Parts(verify=100, tap=25, one_pass=10, passes=4), 1.0, own=False)
    assert (alone.own, alone.tapped) == (0, 65)
    assert law(Parts(verify=60, tap=25, one_pass=10, passes=4), 1.0, own_share=0.5).hit == 65


def test_points_vary_one_factor_at_a_time():
    base = laws.Settings(exit_layer=2)
    found = list(points(base, ("kappa", "exit_layer")))
    assert [(point.factor, point.value) for point in found] == [
        (None, None), ("kappa", 1), ("kappa", 2), ("kappa", 4), ("exit_layer", 1), ("exit_layer", 4), ("exit_layer", 6),
    ]  # fmt: skip
    assert not any(point.settings.unpaced for point in found)
    assert found[1].settings.kappa == 1
    assert found[1].settings.exit_layer == 2
    assert len(list(points(base))) == 1 + sum(len(values) for values in FACTORS.values()) - 4
    with pytest.raises(UsageError, match="no factor 'luck'"):
        list(points(base, ("luck",)))


def step(wall, verify=99, passes=(10, 10, 10), glue=10):
    wall, verify, glue, *passes = (ms * 1_000_000 for ms in (wall, verify, glue, *passes))
    return Step(wall, verify, 0, 0, glue, tuple(passes), (), 3, 20, "hit")


def test_every_step_is_predicted_from_its_own_parts():
    found = {
        "step_ms_by_next": {"hit": 100.0, "jit": 130.0}, "verify_ms": 99.0,
        "tapped_verify_ms": 95.0, "beside_draft_verify_ms": 99.0, "commit_ms": 1.0, "own_share": None,
        "tap_ms": 40.0, "pass_ms": 10.0, "beside_pass_ms": 10.0, "glue_ms": 10.0, "late_pass_ms": 0.0,
        "passes": 3, "roots": 20.0, "width": None, "rendezvous_us": 0.0, "hit_rate": 0.9, "tokens_per_step": 3.0,
        "hidden_share": 1.0, "identical": True, "other_programs_cores": None,
    }  # fmt: skip
    steps = [step(100)] * 9 + [step(130)]
    row = compared(found, steps, "hybrid")
    assert row["measured_ms"] == 103
    assert row["predicted_ms"] == pytest.approx(103)
    assert row["error"] == pytest.approx(0, abs=1e-9)
    assert row["alone_error"] == pytest.approx(-5 / 103)
    assert row["fits"]
    # One in which the draft was slow, as slow steps go: on average its rollouts would fit.
    uneven = compared(found, [*steps[1:], step(110, passes=(30, 30, 40))], "draft")
    assert row["predicted_ms"] + 1 < uneven["predicted_ms"]
    assert uneven["fits"]
    # A second group of roots goes on until the next step has begun, whose glue waits for it.
    pressed = found | {"roots": 24, "width": 19}
    busy = [step(100, passes=(19, 19, 19))]
    assert (
        compared(pressed, busy, "draft")["predicted_ms"]
        > compared(pressed | {"width": 24}, busy, "draft")["predicted_ms"]
    )
    late = compared(found | {"late_pass_ms": 8.0}, steps, "hybrid")
    assert row["predicted_miss_ms"] - late["predicted_miss_ms"] == pytest.approx(3 * 2.0)
    assert compared(found, steps, "draft")["tap_rollout_ms"] == 0
    assert compared(found, steps, "tap")["own_rollout_ms"] == 0


def test_the_command(folder, capsys, tmp_path):
    words = ["bench", "law", "--model", str(folder), "--params", "0", "--pass-ms", "3", "--steps", "3"]
    words += ["--num-draft-tokens", "3", "--kappa", "2", "--max-roots", "6", "--sweep", "kappa"]
    assert main([*words, "--json", "--plot", str(tmp_path / "sweep.png")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["value"] for point in found["points"]] == [None, 1, 4, 8]
    assert found["worst_error"] >= found["median_error"] >= 0
    assert (tmp_path / "sweep.png").stat().st_size > 10_000
    assert main(words) == 0
    assert "error of the law: median" in capsys.readouterr().out
