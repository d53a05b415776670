"""`mirror-mlx bench spec` on tiny models: everything at once, Ctrl-C, and mistakes."""

import json
import shutil

import models
import pytest
import streams
from test_streaming_model import write

from mirror_mlx.bench import spec_methods
from mirror_mlx.bench.peers import Plain
from mirror_mlx.bench.spec_log import NAME
from mirror_mlx.cli.main import main


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    models.save_tiny(folder / "target", seed=3)
    write(streams.tiny(), folder / "draft")
    shutil.copytree(folder / "target", folder / "draft-ar")
    return folder


def asked(pair, *lines):
    file = pair / "asked.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(file)


@pytest.fixture(scope="module")
def store(pair):
    data = pair / "texts.txt"
    data.write_text("Tom has 3 apples and buys 4 more. He has 7 apples. " * 20)
    out = pair / "texts.datastore"
    assert main(["datastore", "--model", str(pair / "target"), "--data", str(data), "--out", str(out)]) == 0
    return str(out)


def command(pair, *more):
    file = asked(
        pair, {"question_id": 1, "category": "writing", "turns": ["Tom has 3 apples.", "And now?"]},
        {"question_id": 2, "category": "qa", "turns": ["Who?"]},
    )  # fmt: skip
    words = ["bench", "spec", "--model", str(pair), "--questions", file, "--runs", "1", "--warmups", "1"]
    return main([*words, "--max-tokens", "12", "--num-draft-tokens", "3", "--kappa", "2", "--max-roots", "6", *more])


def test_everything_at_once(pair, store, tmp_path, capsys):
    """In the lab, with all methods, then a second time: nothing is left to do."""
    words = ("--datastore", store, "--pass-ms", "1", "--params", "200000", "--out", str(tmp_path), "--json")
    assert command(pair, *words, "--warmups", "0") == 0
    found = json.loads(capsys.readouterr().out)
    names = list(spec_methods.TABLE)
    for at in found["temperatures"]:
        assert [row["method"] for row in at["methods"]] == names
        assert at["tasks"] == ["writing", "qa", "overall"] or at["tasks"] == ["qa", "writing", "overall"]
        for row in at["methods"]:
            drawn = row["method"].startswith("mlx-sd") and at["temperature"] > 0
            assert row["identical"]["reason"] == ("own noise" if drawn else None)
            assert drawn or row["identical"]["same"] == row["identical"]["of"] == 3
            assert row["tasks"]["overall"]["questions"] == 2
            assert (row["where"] is None) == row["method"].startswith(("plain", "mlx-sd"))
            if row["method"] != "auto":  # which speculates beside the target or does not
                beside = row["method"].startswith(("sag", "mir", "hyb"))
                assert (row["tasks"]["overall"]["hit_rate"] is not None) == beside
        assert at["best"]["mlx-sd"]["method"].startswith("mlx-sd@")
    assert found["setup"]["target_parameters"] >= 200_000
    assert found["setup"]["asked_by_category"] == {"writing": 1, "qa": 1}
    assert (found["finished"], found["left_out"]) == (True, {"methods": {}, "questions": 0})
    assert json.loads((tmp_path / "summary.json").read_text()) == found
    page = (tmp_path / "table.md").read_text()
    assert page.count("| hybrid-stream+lookup |") == 6
    assert "draft pass takes 1 ms" in page
    assert (tmp_path / "spec.png").stat().st_size > 10_000
    lines = (tmp_path / NAME).read_text().splitlines()
    assert len(lines) == 1 + 2 * 3 * len(names)
    record = json.loads(lines[1])
    assert record["new_tokens"] == sum(record["accept_lengths"])
    assert command(pair, *words, "--warmups", "0") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["temperatures"] == found["temperatures"]
    assert len((tmp_path / NAME).read_text().splitlines()) == len(lines) + 1


def test_as_tables_and_stopped_in_the_middle(pair, tmp_path, capsys, monkeypatch):
    words = ("--methods", "sd-stream", "ar", "--temp", "0", "--out", str(tmp_path))
    stream, calls = Plain.stream, []

    def interrupted(self, *args):
        calls.append(1)
        for token in stream(self, *args):
            if len(calls) == 4:  # a warm-up, two turns, and then
                raise KeyboardInterrupt
            yield token

    with monkeypatch.context() as patched:
        patched.setattr(Plain, "stream", interrupted)
        assert command(pair, *words) == 130
    out, error = capsys.readouterr()
    assert "not finished: 5 of 6 dialogues" in out
    assert "the same command goes on from here" in error
    assert command(pair, *words) == 0
    out = capsys.readouterr().out
    assert "stopped 1× and resumed" in out
    assert "temperature 0: where a step's time went" in out
    assert "left out" not in out
    for name in ("plain", "ar", "sd-stream"):
        assert f"\n{name} " in out
    assert max(map(len, out.split("\n"))) > 80
    assert command(pair, *words, "--max-tokens", "13") == 2
    assert "--max-tokens was 12 and is 13" in capsys.readouterr().err


def test_mistakes_are_one_line(pair, capsys, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"question": "x"}\n{oops\n')
    (tmp_path / "long.jsonl").write_text(json.dumps({"question": "x" * 900}))
    for words, says in (
        (["--questions", "/no/file"], "there is no file '/no/file': check --questions"),
        (["--questions", str(tmp_path / "bad.jsonl")], "bad.jsonl, line 2: it is not JSON"),
        (["--methods", "mlx-sd"], "--methods has 'mlx-sd': did you mean mlx-sd@7? choose from plain, mlx-sd@2"),
        (["--questions", str(tmp_path / "long.jsonl")], "no question fits: all 1 are longer than the model's context"),
        (["--runs", "0"], "--runs is 0: it must be 1 or more"),
        (["--num-draft-tokens", "0"], "--num-draft-tokens is 0"),
        (["--temp", "0", "0"], "--temp 0 is given twice"),
        (["--draft-model", str(pair / "none")], "none"),
        (["--streaming-draft", str(pair / "draft-ar")], "that is no streaming draft"),
        (["--methods", "rest", "--datastore", str(tmp_path / "none")], "none"),
        (["--out", str(tmp_path / "bad.jsonl")], "cannot be written"),
    ):
        assert main(["bench", "spec", "--model", str(pair), *words]) == 2, words
        error = capsys.readouterr().err
        assert says in error, (words, error)
        assert error.count("\n") == 1, error


def test_what_is_missing_is_left_out(pair, tmp_path, capsys):
    file = asked(pair, {"question": "Who?"}, {"question": "x" * 900})
    words = ["bench", "spec", "--model", str(pair / "target"), "--questions", file, "--runs", "1", "--warmups", "0"]
    methods = ["--methods", "mlx-sd@2", "hybrid-stream", "rest", "pld"]
    assert main([*words, *methods, "--temp", "0", "--max-tokens", "6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["methods"]) == ["plain", "pld"]
    assert found["left_out"]["questions"] == 1
    assert "--draft-model" in found["left_out"]["methods"]["mlx-sd@2"]
    assert "--streaming-draft" in found["left_out"]["methods"]["hybrid-stream"]
    assert "--datastore" in found["left_out"]["methods"]["rest"]
