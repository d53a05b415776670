"""Converted drafts must say what the draft says: the bundled packages as they lie there, other precisions, quantised
drafts, and a fault that must be noticed."""

import json
import shutil

import numpy as np
import pytest

from mirror_mlx.cli.main import main
from mirror_mlx.convert import checks, graph, parity, slots
from mirror_mlx.convert.script import Said
from mirror_mlx.draft.package import find, manifest
from mirror_mlx.draft.package.reference import ReferenceHost, lean_programs
from mirror_mlx.errors import DraftError
from mirror_mlx.loading import DEMO

BUNDLED = find.BUNDLED / "demo"


def test_the_bundled_packages_are_those_of_the_bundled_draft():
    made = manifest.read(BUNDLED)
    manifest.verify(made, BUNDLED)
    assert (made.draft.weights, made.draft.tokenizer) == manifest.source(DEMO / "draft")
    assert made.precision == "float16"
    for package in made.packages:
        checks.check(BUNDLED / package.file, stateful=made.stateful, max_bytes=1e9)


def test_the_bundled_packages_say_what_the_bundled_draft_says():
    found = parity.check(manifest.read(BUNDLED), BUNDLED, DEMO / "draft")
    assert found["float32_top1"] >= 0.999
    assert found["float32_hidden"] <= 1e-3
    assert found["float16_top1"] >= 0.99


@pytest.mark.parametrize("kind", ["streaming", "autoregressive"])
def test_int8_of_a_quantised_draft(kind, tmp_path, capsys):
    draft = tmp_path / "draft"
    shutil.copytree(DEMO / "draft", draft)
    if kind == "autoregressive":  # the main stream alone
        (draft / "streams.safetensors").unlink()
        config = json.loads((draft / "config.json").read_text())
        (draft / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "mirror"}))
    words = ["convert", str(draft), "--out", str(tmp_path / "out"), "--context", "256", "--precision", "int8"]
    assert main(words) == 0
    made = manifest.read(tmp_path / "out")
    assert min(made.parity["float32_top1"], made.parity["float16_top1"]) >= 0.97
    assert "2 packages" in capsys.readouterr().out


def test_a_wrong_state_write_is_noticed(tmp_path, monkeypatch, capsys):
    """Each layer writes into the slots as they were at the start: what becomes of a state that is read before each
    write, when coremltools merges the readings."""

    class Stale(slots.StateBySlices):
        def write(self, keys, values):
            before = self._full
            found = super().write(keys, values)
            self._full = before
            return found

    monkeypatch.setattr(graph, "StateBySlices", Stale)
    monkeypatch.setattr(checks, "check_states", lambda *args: None)  # which would refuse it by its form
    assert main(["convert", "demo", "--out", str(tmp_path / "out"), "--context", "256"]) == 2
    assert "it is not kept" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_precisions_that_lose_too_much_are_refused(monkeypatch):
    monkeypatch.setitem(parity.TOP1, "float16", 1.01)
    with pytest.raises(DraftError, match="it is not kept; take another --precision"):
        parity.check(manifest.read(BUNDLED), BUNDLED, DEMO / "draft")


def test_a_draft_without_a_tokenizer_is_compared_on_random_tokens(tmp_path):
    made = manifest.read(BUNDLED)
    assert len(parity.tokens(DEMO / "draft", made)) > 100
    assert len(parity.tokens(tmp_path, made)) == 128


def test_ties_count_and_other_differences_do_not():
    def said(best, bucket, peaks):
        return Said(np.ones((1, 2)), [best], [bucket], [np.array(peaks, np.float32)])

    draft = said(7, 1, [9.9999, 10.0, -np.inf])
    assert parity.compared(draft, said(7, 1, [9.0, 10.0, -1e4])).top1 == 1
    tie = parity.compared(draft, said(6, 0, [10.0, 9.9999, -1e4]))
    assert (tie.top1, tie.rows) == (1, 1)
    assert tie.logits == pytest.approx(1e-5, rel=0.1)
    assert parity.compared(said(7, 1, [9.9, 10.0, 0.0]), said(6, 0, [10.0, 9.9, 0.0])).top1 == 0
    assert parity.compared(draft, said(7, 1, [np.nan, 10.0, 0.0])).logits == np.inf


def test_a_lean_program_says_the_same(tmp_path):
    made = manifest.read(BUNDLED)
    lean = ReferenceHost(made, BUNDLED, programs=lean_programs(made, BUNDLED))
    wide = ReferenceHost(made, BUNDLED)
    assert sum(p.nbytes for p in lean._programs) < 0.6 * sum(p.nbytes for p in wide._programs)
    inputs = wide.blank(0, "rollout")
    inputs["x"] = np.random.default_rng(0).standard_normal(inputs["x"].shape).astype(np.float32)
    assert np.allclose(lean.call(0, "rollout", inputs)["h"], wide.call(0, "rollout", inputs)["h"], atol=1e-6)
