"""`mirror-mlx bench convert`: a made draft, the figures of its conversions, and mistakes. Nothing here times."""

import json
import logging
import tempfile

import mlx.core as mx
import numpy as np
import pytest

logging.disable(logging.WARNING)
pytest.importorskip("coremltools")
logging.disable(logging.NOTSET)

from mirror_mlx.bench import conversion  # noqa: E402
from mirror_mlx.bench.conversion import Plan, Shape, measure, write  # noqa: E402
from mirror_mlx.cli.main import main  # noqa: E402
from mirror_mlx.draft.streaming.weights import load_dense  # noqa: E402
from mirror_mlx.errors import DraftError  # noqa: E402

TINY = Shape(
    layers=2, hidden_size=64, intermediate_size=96, heads=2, kv_heads=1, head_dim=32, vocab_size=300, untied=False
)
FLAGS = ["--layers", "2", "--hidden-size", "64", "--intermediate-size", "96", "--heads", "2", "--kv-heads", "1",
         "--head-dim", "32", "--vocab-size", "300"]  # fmt: skip
FIGURES = {
    "precision", "seconds", "peak_bytes", "baseline_bytes", "peak_ratio", "peak_ratio_above_baseline", "packages",
    "largest_package_bytes", "below_limit", "head_parts", "head_part_rows", "parity",
}  # fmt: skip


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Where temporary folders are made; nothing may be left in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("untied", [False, True])
def test_a_made_draft_is_one_that_mlx_lm_loads(untied, tmp_path):
    shares = []
    write(Shape(**vars_of(TINY) | {"untied": untied}), tmp_path / "draft", shares.append)
    model, config = load_dense(tmp_path / "draft", boundary=None, streams=0)
    assert (config.base["num_hidden_layers"], config.boundary) == (2, 1)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    weight = model.model.layers[1].mlp.up_proj.weight
    assert weight.dtype == mx.bfloat16
    assert 0.01 < float(mx.std(weight.astype(mx.float32))) < 0.03
    np.testing.assert_array_equal(np.array(model.model.norm.weight.astype(mx.float32)), 1)
    assert ("lm_head" in model) == untied


def vars_of(shape):
    return {name: getattr(shape, name) for name in Shape.__dataclass_fields__}


def test_the_command_gives_every_figure(capsys, scratch):
    assert main(["bench", "convert", *FLAGS, "--precision", "int8", "int8", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    assert found["draft"] == vars_of(TINY) | {
        "name": "random weights", "parameters": 81_088, "float16_bytes": 162_176,
    }  # fmt: skip
    (row,) = found["conversions"]
    assert set(row) == FIGURES
    assert row["precision"] == "int8"
    assert row["packages"] == 2
    assert row["below_limit"] is True
    assert (row["head_parts"], row["head_part_rows"]) == (1, 512)
    assert row["parity"] == {}
    assert 0 < row["baseline_bytes"] <= row["peak_bytes"] < 1e9
    assert row["peak_ratio"] == pytest.approx(row["peak_bytes"] / 162_176, rel=1e-3)
    assert 50_000 < row["largest_package_bytes"] < 400_000


def test_parity_is_checked_where_it_is_asked_for(monkeypatch, tmp_path):
    from mirror_mlx.convert import parity

    monkeypatch.setattr(parity, "check", lambda manifest, folder, draft: {"top1": float(folder.is_dir())})
    write(TINY, tmp_path / "draft")
    request = {"draft": str(tmp_path / "draft"), "out": str(tmp_path / "out"), "precision": "lut4", "began": 0.0}
    for asked, found in ((True, {"top1": 1.0}), (False, {})):
        assert conversion._figures(request | {"parity": asked}, lambda *_: None)["parity"] == found


def test_a_draft_that_is_there_is_converted_and_not_touched(capsys, scratch, tmp_path_factory):
    draft = tmp_path_factory.mktemp("drafts") / "mine"
    write(TINY, draft)
    before = {path.name: path.read_bytes() for path in draft.iterdir()}
    assert main(["bench", "convert", "--draft", str(draft), "--precision", "float16"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[0] == "mine: 0.1 M parameters, 0 MB in float16"
    assert "float16" in out.splitlines()[2]
    assert "yes" in out.splitlines()[2]
    assert {path.name: path.read_bytes() for path in draft.iterdir()} == before


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--layers", "0"], "--layers is 0: it must be 2 or more"),
        (["--vocab-size", "-1"], "--vocab-size is -1: it must be 1 or more"),
        (["--heads", "3", "--kv-heads", "2"], "--heads is 3: it must be a multiple of --kv-heads, which is 2"),
        (["--head-dim", "40"], "head_dim is 40: Core ML state is only right for a multiple of 32"),
        (["--hidden-size", "20000"], "hidden_size is 20000"),
        (["--precision", "int4"], "invalid choice: 'int4'"),
        (["--draft", "./missing"], "there is no folder './missing': check the path"),
        (["--draft", "demo", "--layers", "3"], "--layers is for a draft that is made: leave it out, or --draft"),
    ],
)
def test_mistakes_are_one_line(flags, said, capsys, scratch):
    try:
        status = main(["bench", "convert", *flags])
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert said in err


def test_an_empty_folder_is_no_draft(capsys, tmp_path):
    assert main(["bench", "convert", "--draft", str(tmp_path)]) == 2
    assert f"{tmp_path} cannot be loaded" in capsys.readouterr().err


def test_ctrl_c_leaves_nothing_and_no_process(scratch, monkeypatch):
    children = []
    real = conversion.subprocess.Popen

    def popen(*args, **options):
        children.append(real(*args, **options))
        return children[-1]

    def interrupt(done, what):
        if what.startswith("float16"):
            raise KeyboardInterrupt

    monkeypatch.setattr(conversion.subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        measure(Plan(TINY, ("float16",)), interrupt)
    assert [child.returncode for child in children] == [-9]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('{\"share\": 1, \"what\": \"it\"}'); raise ValueError('no')", "ended with code 1 .ValueError: no"),
        ("import os; os.kill(os.getpid(), 9)", "ended with code -9 .it was killed: is there too little memory"),
        ("print('{\"error\": \"no such draft\"}')", "^no such draft$"),
    ],
)  # fmt: skip
def test_a_conversion_that_fails_says_why(code, said, scratch, monkeypatch):
    real = conversion.subprocess.Popen
    monkeypatch.setattr(
        conversion.subprocess, "Popen", lambda words, **options: real([words[0], "-c", code], **options)
    )
    with pytest.raises(DraftError, match=said):
        measure(Plan(TINY, ("float16",)))


def test_a_full_disk_is_said_before_anything_is_converted(scratch, monkeypatch):
    def fsync(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(conversion.os, "fsync", fsync)
    with pytest.raises(DraftError, match=r"was not written to .* \(No space left on device\): set TMPDIR"):
        measure(Plan(TINY))
