"""`mirror-mlx bench law`: the figures, the whole command on a tiny pair, and its mistakes. Nothing here times."""

import json

import models
import pytest

from mirror_mlx.bench import figures, plot
from mirror_mlx.cli.main import main
from mirror_mlx.cli.measuring import parameters
from mirror_mlx.messages import Outcome, Window
from mirror_mlx.trace import Span, StepTrace, Trace

CONTRACT = {
    "verify_ms",
    "step_ms",
    "step_over_verify",
    "draft_ms",
    "hidden_draft_ms",
    "rendezvous_us",
    "hit_rate",
    "tokens_per_step",
}
MS = 1_000_000
FULL = Window((1, 2), "hit")


def timeline():
    """A hit, then a miss: verifications of 10 ms, passes of 4 ms, and a rollout of two passes while the target waits.

    |0 verify 10|11 verify 21|wait 29|30 verify 40|
    |2 glue 6|6 pass 10| |13 pass 17|  |21 pass 25|25 pass 29|
    """
    target = [("verify", 0, 0, 10), ("verify", 1, 11, 21), ("collect", 1, 21, 29.002), ("verify", 2, 30, 40)]
    draft = [("glue", 0, 2, 6), ("pass", 0, 6, 10), ("pass", 1, 13, 17), ("pass", 1, 21, 25), ("pass", 1, 25, 29)]
    return Trace(
        spans=[Span("target", name, step, round(a * MS), round(b * MS)) for name, step, a, b in target]
        + [Span("draft", name, step, a * MS, b * MS) for name, step, a, b in draft],
        steps=[
            StepTrace(0, FULL, Outcome(2, 5), roots=4, next="hit", waited=2000, foreseen="draft"),
            StepTrace(1, FULL, Outcome(0, 5), roots=4, next="jit", waited=8 * MS),
            StepTrace(2, Window((1,), "jit"), Outcome(1, 5), roots=4, next="none"),
        ],
        exchanges=[3000],
        taps=[5 * MS, 14 * MS],
    )


def test_a_step_lasts_until_the_next_one_starts():
    first, second = figures.steps_of(timeline(), 2)
    assert (first.wall, first.verify, first.draft, first.hidden) == (11 * MS, 10 * MS, 8 * MS, 8 * MS)
    assert (second.wall, second.verify, second.draft, second.hidden) == (19 * MS, 10 * MS, 12 * MS, 4 * MS)
    assert (first.glue, first.passes, first.late) == (4 * MS, (4 * MS,), ())
    assert (second.glue, second.passes, second.late) == (0, (4 * MS,), (4 * MS, 4 * MS))


def test_short_windows_and_the_last_step_do_not_count():
    assert [step.next for step in figures.steps_of(timeline(), 2)] == ["hit", "jit"]
    assert figures.steps_of(timeline(), 1) == []


def test_the_figures_of_a_sample():
    sample = figures.Sample()
    sample.add(timeline(), 2)
    found = figures.summarise(sample, [10 * MS, 10 * MS])
    assert found["verify_ms"] == 10
    assert found["step_ms"] == 15
    assert found["step_over_verify"] == 1.5
    assert found["hidden_share"] == pytest.approx(12 / 20)
    assert found["rendezvous_us"] == 5
    assert found["hit_rate"] == 0.5
    assert found["hit_rate_by_row"] == [0.0, None, 1.0]
    assert found["own_share"] == 1.0
    assert found["tokens_per_step"] == 2
    assert found["step_ms_by_next"] == {"hit": 11, "jit": 19}
    assert [found[f"{name}_ms"] for name in ("glue", "pass", "beside_pass", "late_pass")] == [2, 4, 4, 4]


def test_no_steps_no_figures():
    found = figures.summarise(figures.Sample(), [])
    assert found["step_over_verify"] == found["hit_rate"] == found["hidden_share"] == 0
    assert found["own_share"] is None


def test_the_plot_shows_where_the_target_waits():
    run = timeline()
    assert plot.choose([run], 2) == (run, 0)
    lanes = plot.intervals(run, 0)
    assert lanes["verify, up to the tap"][:2] == [(0, 5), (11, 14)]
    assert lanes["verify, after the tap"][:2] == [(5, 10), (14, 21)]
    assert lanes["waits for the draft"] == [(21, pytest.approx(29.002))]
    assert lanes["steps"][1] == (11, 30, 0, "jit")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.pair(tmp_path_factory.mktemp("pair"), draft={"seed": 1})


LAB = ["--params", "200000", "--pass-ms", "1", "--steps", "6", "--num-draft-tokens", "3", "--max-roots", "16"]


def test_the_whole_command(folder, tmp_path, capsys):
    picture = tmp_path / "law.png"
    assert main(["bench", "law", "--model", str(folder), *LAB, "--json", "--plot", str(picture)]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found.keys() >= CONTRACT
    assert found["unpaced"].keys() >= CONTRACT
    assert found["identical"] is True
    assert found["steps"] >= 6
    assert found["lab"]["params"] >= 200_000
    assert found["pass_ms"] >= 1
    assert found["tokens_per_step"] >= 1
    assert found["step_ms"] > 0
    assert len(found["step_ms_p10_p90"]) == 2
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not err or "other programs" in err


def test_in_words_sampled_and_on_prompts_of_ones_own(folder, tmp_path, capsys):
    file = tmp_path / "asked.txt"
    file.write_text("Never asked.\nWhy is the sky blue?\n")
    command = ["bench", "law", "--model", str(folder), *LAB, "--no-unpaced", "--temp", "1", "--predictor", "draft"]
    command += ["--prompts", str(file), "--held-out", "0.5"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "step ÷ bare verify" in out
    assert "tokens equal those of plain decoding: yes" in out
    assert "own speed" not in out
    assert "after the tap" not in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--steps", "0"], "--steps is 0: it must be 1 or more"),
        (["--steps", "many"], "--steps: invalid int value: 'many'"),
        (["--params", "few"], "'few' is no number of parameters"),
        (["--pass-ms", "-1"], "--pass-ms is -1.0"),
        (["--pass-ms", "nan"], "--pass-ms is nan"),
        (["--temp", "-1"], "--temp is -1.0"),
        (["--kappa", "0"], "--kappa is 0"),
        (["--num-draft-tokens", "0"], "--num-draft-tokens is 0"),
        (["--plot", "/nowhere/at/all.png"], "--plot /nowhere/at/all.png cannot be written"),
        (["--plot", "picture.txt"], "ends in .png"),
        (["--model", "/nowhere"], "there is no folder '/nowhere'"),
        (["--model", "FOLDER/target"], "comes with no draft: give one with --draft-model"),
        (["--model", "FOLDER", "--exit-layer", "9"], "--exit-layer is 9: this model has 4 layers"),
    ],
)
def test_mistakes_are_one_line(folder, capsys, arguments, says):
    words = [word.replace("FOLDER", str(folder)) for word in arguments]
    try:
        status = main(["bench", "law", *words])
    except SystemExit as exit_:
        status = exit_.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_plot_without_matplotlib(capsys, monkeypatch):
    monkeypatch.setattr("mirror_mlx.cli.measuring.find_spec", lambda name: None)
    assert main(["bench", "law", "--plot", "x.png"]) == 2
    assert capsys.readouterr().err == "mirror-mlx: --plot needs matplotlib: pip install 'mirror-mlx[plot]'\n"


def test_there_is_help_for_it(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "law", "--help"])
    assert "--pass-ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "count"), [("131M", 131_000_000), ("1.5e8", 150_000_000), ("0", 0), ("2b", 2 * 10**9)]
)
def test_numbers_of_parameters(text, count):
    assert parameters(text) == count
