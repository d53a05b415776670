"""The conversion in steps: each leaves what the next one takes, and nothing is used before it was compared."""

import json

import pytest

from mirror_mlx.convert.__main__ import main
from mirror_mlx.draft.package import find
from mirror_mlx.draft.package.manifest import FILE
from mirror_mlx.loading import DEMO


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(find, "CACHE", tmp_path / "nothing")
    monkeypatch.setattr(find, "BUNDLED", tmp_path / "none")
    return tmp_path / find.NAME / "steps"


def test_build_check_parity(folder, capsys):
    assert main(["build", "demo", "--context", "256", str(folder)]) == 0
    assert capsys.readouterr().out.split() == ["segment-1.mlpackage", "segment-2.mlpackage"]
    assert find.of(DEMO / "draft") is None
    assert main(["check", str(folder)]) == 0
    assert main(["parity", str(folder), "demo"]) == 0
    assert "float32_top1: 1" in capsys.readouterr().out
    assert json.loads((folder / FILE).read_text())["parity"]["float32_top1"] == 1
    found = find.of(DEMO / "draft")
    assert found is not None
    assert found[0].name == "steps"


def test_mistakes_are_one_line(folder, capsys):
    for words, said in (
        (["build", "demo", "--context", "100", str(folder)], "context is 100"),
        (["check", str(folder)], "cannot be read"),
        (["parity", str(folder), "demo"], "cannot be read"),
        (["build", "nowhere/at/all", str(folder)], "nowhere/at/all"),
    ):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert not folder.exists()
