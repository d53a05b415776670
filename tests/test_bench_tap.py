"""`mirror-mlx bench tap`: the whole command on a tiny pair, and its mistakes."""

import json
import shutil

import models
import pytest

import mirror_mlx
from mirror_mlx.cli.main import main

FEW = ["--limit", "2", "--max-tokens", "12", "--num-draft-tokens", "3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.pair(tmp_path_factory.mktemp("pair"), draft={"seed": 1})


def test_the_whole_command(folder, tmp_path, capsys):
    picture = tmp_path / "hits.png"
    assert main(["bench", "tap", "--model", str(folder), *FEW, "--json", "--plot", str(picture)]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert (found["kappas"], found["per_row"], found["per_step"]) == ([1, 2, 4, 8], [2, 4, 8], [4, 8, 16, 32, 64])
    assert found["setup"]["requests"] == 2
    assert [tables["temperature"] for tables in found["temperatures"]] == [0, 1]
    for tables in found["temperatures"]:
        assert [tap["exit_layer"] for tap in tables["taps"]] == [1, 2, 3]
        for source in (tables["draft"], *(tap[name] for tap in tables["taps"] for name in ("tap", "hybrid"))):
            rates = source["by_kappa"]["hit_rate"]
            assert rates == sorted(rates), "more roots hit more often"
            assert all(
                hit + miss == pytest.approx(1) for hit, miss in zip(rates, source["by_kappa"]["miss_rate"], strict=True)
            )
    assert found["exit_layer"] in (1, 2, 3)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not (folder / "pair.json").exists()


def test_in_words_and_kept_in_the_pair(tmp_path, capsys):
    folder = models.pair(tmp_path, draft={"seed": 1})
    models.save_tap(folder, [2])
    (folder / "pair.json").write_text('{"options": {"kappa": 2, "max_roots": 6}, "about": "ours"}')
    (tmp_path / "asked.txt").write_text("How many?\nAnd now?\nAnd then?\n")
    command = ["bench", "tap", "--model", str(folder), *FEW, "--exit-layers", "3", "2", "--temp", "0", "--write"]
    assert main([*command, "--prompts", str(tmp_path / "asked.txt")]) == 0
    out = capsys.readouterr().out
    for part in (
        "prompts: 2; 3 proposals; tap after 2, 3 of 4 layers",
        "temperature 0: ",
        "tap 2, trained + draft",
        "miss rate, κ roots on every row",
        "hit rate, so many roots on a row in all",
        "hybrid as this pair is run (κ 2, 6 roots), by exit layer: 2: ",
        "best exit layer: ",
    ):
        assert part in out
    assert max(map(len, out.splitlines())) <= 120
    kept = json.loads((folder / "pair.json").read_text())
    best = kept["hits"]["exit_layer"]
    assert kept["options"] == {"kappa": 2, "max_roots": 6, "exit_layer": best}
    assert kept["about"] == "ours"
    assert kept["hits"]["setup"]["prompts"] == "asked.txt"
    assert str(tmp_path) not in (folder / "pair.json").read_text()
    with mirror_mlx.load(folder, mode="mirror") as engine:
        assert engine.target.exit_layer == best
    assert main([*command, "--json", "--plot", str(tmp_path / "again.svg")]) == 0, "what was written can be read"
    assert json.loads(capsys.readouterr().out)["setup"]["trained"] == [2]


def test_layers_that_cannot_be_adapted_are_measured_plainly(folder, capsys, monkeypatch):
    monkeypatch.setattr("mirror_mlx.target.tap.TapAdapter.refusal", lambda self, widths: "it returns a pair")
    file = models.save_tap(folder / "target", [2])
    try:
        assert main(["bench", "tap", "--model", str(folder), *FEW, "--temp", "0"]) == 0
    finally:
        file.unlink()
    out = capsys.readouterr().out
    assert "the trained tap cannot be used: it returns a pair" in out
    assert "trained + draft" not in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--limit", "0"], "--limit is 0: it must be 1 or more"),
        (["--limit", "few"], "--limit: invalid int value: 'few'"),
        (["--max-tokens", "0"], "--max-tokens is 0: it must be 1 or more"),
        (["--temp", "0", "-1"], "--temp is -1.0: it must be 0 or more"),
        (["--temp", "nan"], "--temp is nan"),
        (["--temp"], "--temp: expected at least one argument"),
        (["--seed", "-1"], "--seed is -1"),
        (["--kappa", "0"], "--kappa is 0"),
        (["--model", "FOLDER", "--kappa", "300"], "--kappa is 300: the target has only 259 tokens"),
        (["--max-roots", "0"], "--max-roots is 0"),
        (["--num-draft-tokens", "0"], "--num-draft-tokens is 0"),
        (["--model", "FOLDER", "--exit-layers", "2", "9"], "--exit-layers has 9: this model has 4 layers"),
        (["--model", "FOLDER", "--exit-layers", "0"], "--exit-layers has 0: this model has 4 layers"),
        (["--model", "FOLDER", "--max-tokens", "1"], "no step prepared a window: the answers are too short"),
        (["--prompts", "/no/prompts.jsonl"], "there is no file '/no/prompts.jsonl': check --prompts"),
        (["--prompts", "FOLDER"], "cannot be read: Is a directory"),
        (["--model", "FOLDER", "--prompts", "LONG"], "prompt 1 has 939 tokens and the model's context is 512"),
        (["--plot", "/nowhere/at/all.png"], "--plot /nowhere/at/all.png cannot be written"),
        (["--plot", "picture.txt"], "ends in .png"),
        (["--model", "/nowhere"], "there is no folder '/nowhere'"),
        (["--model", "FOLDER/target"], "comes with no draft: give one with --draft-model"),
        (["--model", "FOLDER", "--draft-model", "/nowhere"], "there is no folder '/nowhere'"),
        (["--model", "FOLDER/target", "--write"], "--write needs a pair, a folder that holds target and draft"),
        (["--model", "org/name", "--write"], "--write needs a pair"),
        (["--model", "FOLDER", "--draft-model", "FOLDER/draft", "--write"], "leave out --draft-model"),
        (
            ["--exit-layer", "2"],
            "there is no flag --exit-layer, did you mean --exit-layers? (see 'mirror-mlx bench tap",
        ),
        (["--pass-ms", "2"], "there is no flag --pass-ms (see"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line(folder, tmp_path, capsys, arguments, says):
    (tmp_path / "long.txt").write_text("x" * 920)
    places = {"FOLDER": str(folder), "LONG": str(tmp_path / "long.txt")}
    words = []
    for word in arguments:
        for name, place in places.items():
            word = word.replace(name, place)
        words.append(word)
    assert says in mistake(capsys, *words)


def mistake(capsys, *words):
    try:
        status = main(["bench", "tap", *words])
    except SystemExit as exit_:
        status = exit_.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1), err
    return err


def test_a_tap_or_a_pair_json_that_is_damaged_is_named(folder, tmp_path, capsys):
    pair = shutil.copytree(folder, tmp_path / "pair")
    file = models.save_tap(pair, [2])
    file.write_bytes(file.read_bytes()[:50])
    line = mistake(capsys, "--model", str(pair))
    assert f"{file} is damaged" in line
    models.save_tap(pair, [2], hidden=64)
    assert f"{file} is made for a hidden size of 64, and this model has 32" in mistake(capsys, "--model", str(pair))
    file.unlink()
    (pair / "pair.json").write_text("{")
    assert "pair.json is damaged" in mistake(capsys, "--model", str(pair), "--write")


def test_a_pair_json_that_cannot_be_written(folder, tmp_path, capsys):
    pair = shutil.copytree(folder, tmp_path / "pair")
    (pair / "pair.json").mkdir()
    assert "pair.json cannot be written: it is a folder" in mistake(capsys, "--model", str(pair), "--write")


def test_there_is_help_for_it(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "tap", "--help"])
    assert "--exit-layers" in capsys.readouterr().out
