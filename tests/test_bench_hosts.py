"""The converted draft beside the MLX one: what is counted, and that the bundled one proposes the same."""

import json

import pytest

from mirror_mlx.bench.hosts import Settings, Twin
from mirror_mlx.cli.main import main
from mirror_mlx.draft.package import find
from mirror_mlx.draft.scripted import ScriptedDraft
from mirror_mlx.errors import UsageError
from mirror_mlx.messages import Root
from mirror_mlx.sampling import Sampling


def test_the_bundled_packages_propose_what_the_draft_does(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(find, "CACHE", tmp_path / "nothing")
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "hosts", "--limit", "2", "--rounds", "1", "--max-tokens", "40", "--temp", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    ours, theirs = found["hosts"]
    assert (ours["host"], theirs["host"]) == ("mlx", "reference")
    assert ours["identical"]
    assert theirs["identical"]
    assert theirs["proposals"] > 20
    assert theirs["same_proposals"] >= 0.99
    assert theirs["speed"] > 0


def test_a_twin_counts_what_both_propose():
    """One counts up, the other too but for every fourth token."""
    twin = Twin(ScriptedDraft(lambda c: c[-1] + 1), ScriptedDraft(lambda c: c[-1] + (2 if c[-1] % 4 == 3 else 1)))
    twin.begin(Sampling())
    twin.prefill([0])
    assert twin.width is None
    twin.glue([1, 2], 0)
    twin.expand([Root(0, 9), Root(1, 20)])
    assert twin.advance([(0, 9), (1, 20)]) == {(0, 9): [10], (1, 20): [21]}
    twin.advance([(0, 9), (1, 20)])
    assert (twin.same, twin.proposed) == (4, 4)
    twin.advance([(0, 9), (1, 20)])  # 11 → 12 and 13, 22 → 23 in both
    assert (twin.same, twin.proposed) == (5, 6)
    twin.commit(1)
    twin.rewind(1)
    twin.close()


def test_mistakes_are_one_line(capsys):
    for words, said in (
        (["--limit", "0"], "--limit is 0: it must be 1 or more"),
        (["--model", "nowhere/at/all"], "nowhere/at/all"),
        (["--prompts", "nowhere.txt"], "there is no file"),
    ):
        assert main(["bench", "hosts", *words]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    with pytest.raises(UsageError):
        Settings(rounds=0)
