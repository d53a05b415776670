"""The four variants, the exam and the cost of training: their figures, on tiny models."""

import json
import shutil

import pytest
import streams
from mlx_lm.utils import load_model
from models import save_tiny
from test_streaming_model import write

from mirror_mlx.bench import exam, training, variants
from mirror_mlx.cli.main import main
from mirror_mlx.errors import UsageError
from mirror_mlx.problems import exam as questions


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    save_tiny(folder / "target", seed=3)
    write(streams.tiny(), folder / "draft")
    shutil.copytree(folder / "target", folder / "draft-ar")
    return folder


def test_the_four_variants_and_exact_mode(pair, capsys):
    words = ["bench", "variants", "--model", str(pair), "--limit", "2", "--max-tokens", "40", "--exact", "--json"]
    assert main([*words, "--num-draft-tokens", "7", "--roots", "6", "--kappa", "2", "--temp", "0"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["variant"]: row for row in found["variants"]}
    assert list(rows) == [
        "sd, draft, main stream", "mirror, draft, main stream", "sd, draft", "mirror, draft", "sd, draft, exact",
        "mirror, draft, exact", "sd, draft-ar", "mirror, draft-ar",
    ]  # fmt: skip
    assert all(row["identical"] for row in rows.values())
    # Two passes at their word make a window of 7, and a token beyond it.
    assert rows["sd, draft"]["tokens_per_pass"] == 4
    assert rows["sd, draft"]["passes_per_window"] == 2  # ⌈7 / 4⌉
    for alone in ("sd, draft-ar", "sd, draft, main stream"):
        assert rows[alone]["tokens_per_pass"] == 1
        assert rows[alone]["passes_per_window"] == 7
    assert 1 <= rows["sd, draft, exact"]["tokens_per_pass"] <= 4
    # Its own draft is the target itself: all is accepted.
    assert rows["sd, draft-ar"]["tokens_per_step"] > 4
    assert rows["sd, draft"]["hit_rate"] is None
    assert 0 <= rows["mirror, draft"]["hit_rate"] <= 1
    assert {row["variant"] for row in found["streaming"]} >= {"sd, draft", "mirror, draft"}


def test_variants_as_tables(pair, capsys):
    words = ["bench", "variants", "--model", str(pair), "--limit", "1", "--max-tokens", "6", "--temp", "1"]
    assert main([*words, "--pass-ms", "2", "--drafts", str(pair / "draft"), str(pair / "draft-ar")]) == 0
    said = capsys.readouterr().out
    assert "paced to 2 ms a pass" in said
    assert "of its tokens a step" in said


def test_a_paced_pass_takes_its_time(pair):
    settings = variants.Settings(
        str(pair), {"draft": str(pair / "draft")}, temps=(0.0,), pass_ms=20, limit=1, max_tokens=6, roots=2
    )
    rows = variants.measure(settings)["variants"]
    assert all(row["pass_ms"] >= 19.9 for row in rows)


def test_mistakes_are_one_line(pair, capsys, tmp_path):
    for words, said in (
        (["variants", "--model", str(pair / "target")], "has no drafts beside its target"),
        (["variants", "--model", str(pair), "--limit", "0"], "--limit is 0: it must be 1 or more"),
        (["problems", "--model", str(pair), "--count", "0"], "--count must be 1 or more"),
        (["problems", "--model", str(pair), "--prompts", str(tmp_path / "x")], "there is no file"),
        (["training", "--lengths", "0"], "--lengths must be 1 or more"),
    ):
        assert main(["bench", *words]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    with pytest.raises(UsageError):
        variants.Settings("demo", {}, pass_ms=-1)


def test_answers_are_marked(schooled, capsys):
    turn = next(questions(0, 1))
    right = exam.mark(turn.question, turn.answer, turn, True)
    wrong = exam.mark(turn.question, "It is 1.\n" * 3, turn, False)
    assert (right.right, right.repeats) == (True, False)
    assert (wrong.right, wrong.repeats) == (False, True)
    found = exam.summary([right, wrong, wrong, wrong])
    assert (found["asked"], found["right"], found["right_share"]) == (4, 1, 0.25)
    assert (found["ended_share"], found["repeating_share"]) == (0.25, 0.75)
    assert exam.summary([exam.mark("?", "!", None, True)])["right"] is None
    assert (
        main(["bench", "problems", "--model", str(schooled / "target"), "--count", "3", "-m", "9", "--show", "1"]) == 0
    )
    said = capsys.readouterr().out
    assert "0 of 3 right (0.0%)" in said
    assert "[wrong, it is" in said
    file = schooled / "prompts.txt"
    file.write_text("What is 1 + 1?\n")
    words = ["bench", "problems", "--model", str(schooled / "target"), "--prompts", str(file), "-m", "4", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["right"] is None


def test_training_is_measured_for_every_kind(schooled, capsys):
    target = str(schooled / "target")
    words = ["bench", "training", "--target", target, "--batch-sizes", "2", "--lengths", "48", "--steps", "1", "--json"]
    assert main(words) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["kind"] for row in rows] == list(training.KINDS)
    assert all(row["tokens_per_second"] > 0 and row["peak_mb"] > 0 for row in rows)
    load_model(schooled / "target")  # left as it was
