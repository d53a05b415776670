"""What a conversion writes, and what it leaves when it fails; compressed weights in saved packages."""

import dataclasses
import errno
import json
import logging
import os

import mlx.core as mx
import numpy as np
import pytest
from test_convert import TINY, host, worst, write

logging.disable(logging.WARNING)
pytest.importorskip("coremltools")
logging.disable(logging.NOTSET)

from mirror_mlx.convert import checks, graph, packages  # noqa: E402
from mirror_mlx.convert.convert import convert  # noqa: E402
from mirror_mlx.convert.plan import planned  # noqa: E402
from mirror_mlx.convert.precision import stored  # noqa: E402
from mirror_mlx.convert.slots import StateBySlices  # noqa: E402
from mirror_mlx.convert.toolkit import ct, mb, quiet  # noqa: E402
from mirror_mlx.convert.weights import Draft  # noqa: E402
from mirror_mlx.draft.streaming import MlxSegments  # noqa: E402
from mirror_mlx.draft.streaming.layout import Feed, lay_out  # noqa: E402
from mirror_mlx.errors import DraftError, UsageError  # noqa: E402

SMALL = {"num_hidden_layers": 2, "tie_word_embeddings": False}


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drafts") / "draft"
    write(folder, **SMALL)
    return folder


def everything(folder):
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "how", [KeyboardInterrupt(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), DraftError("no")]
)
@pytest.mark.parametrize("before", [False, True])
def test_whatever_stops_a_conversion_leaves_what_was_there(how, before, draft, tmp_path, monkeypatch):
    out = tmp_path / "models" / "out"
    if before:
        out.mkdir(parents=True)
        (out / "manifest.json").write_text("{}")
    (tmp_path / "models").mkdir(exist_ok=True)
    found = everything(tmp_path)

    def save(draft, part, build, folder, done):
        (folder / part.file).mkdir()
        (folder / part.file / "half").write_text("written")
        raise how

    monkeypatch.setattr(packages, "save", save)
    with pytest.raises(KeyboardInterrupt if isinstance(how, KeyboardInterrupt) else DraftError):
        convert(draft, out, TINY)
    assert everything(tmp_path) == found


def test_a_folder_that_is_something_else_is_not_touched(draft, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is no converted draft"):
        convert(draft, tmp_path, TINY)


@pytest.mark.parametrize("precision", ["int8", "lut6", "lut4"])
def test_compressed_packages_say_what_the_draft_with_their_weights_says(precision, tmp_path, monkeypatch):
    model = write(tmp_path / "draft", **SMALL)
    out = tmp_path / "out"
    out.mkdir()
    (out / "manifest.json").write_text("an older result")
    seen = []

    def parity(manifest, folder, of):
        seen.append(((folder / manifest.packages[0].file).is_dir(), of, (out / "manifest.json").read_text()))
        return {"top1": 1.0}

    build = dataclasses.replace(TINY, precision=precision)
    manifest = convert(tmp_path / "draft", out, build, check=parity)
    assert seen == [(True, tmp_path / "draft", "an older result")]
    assert manifest.parity == {"top1": 1.0}
    assert json.loads((out / "manifest.json").read_text())["precision"] == precision
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft", "out"]

    exact = MlxSegments(model)
    theirs = host(manifest, out, tmp_path / "draft", monkeypatch)
    text = list(range(40))
    exact.prefill(text)
    theirs.prefill(text)
    layout = lay_out([Feed(40, [], [3])], 40, 3)
    plain = np.array(exact.run(layout, range(4)).logits)
    decode(model, precision)
    ours = MlxSegments(model)
    ours.prefill(text)
    error, same = worst(ours, theirs, layout, range(4), np.arange(300))
    assert error < 1e-3
    assert same
    ours.cut(40)
    off = np.abs(np.array(ours.run(layout, range(4)).logits) - plain).max() / np.abs(plain).max()
    assert off < {"int8": 0.05, "lut6": 0.15, "lut4": 0.6}[precision]


@pytest.mark.parametrize("precision", ["float16", "int8", "lut4"])
def test_the_functions_of_a_package_share_its_weights(precision, draft, tmp_path):
    build = dataclasses.replace(TINY, precision=precision)
    opened = Draft(draft, build)
    first = planned(opened, build)[0]
    seen = []
    packages.save(opened, first, build, tmp_path, seen.append)
    assert len(seen) == packages.steps(opened, first, build) == 1
    with quiet():
        functions = ct.utils.load_spec(str(tmp_path / first.file)).mlProgram.functions
    rollout, prefill = (offsets(functions[name]) for name in ("rollout", "prefill"))
    assert rollout == prefill
    assert len(rollout) == {"float16": 11, "int8": 18, "lut4": 18}[precision]


def offsets(function):
    """Where in the weight file a function's constants begin."""
    (block,) = function.block_specializations.values()
    found = [one.attributes["val"] for one in block.operations if one.type == "const"]
    found += [
        bound.value
        for one in block.operations
        for argument in one.inputs.values()
        for bound in argument.arguments
        if bound.WhichOneof("binding") == "value"
    ]
    return {value.blobFileValue.offset for value in found if value.WhichOneof("value") == "blobFileValue"}


def decode(model, precision):
    """Give the model the weights that its packages decode."""

    def decoded(weight):
        weight = np.array(weight.astype(mx.float16))
        padded = np.pad(weight, ((0, -len(weight) % 256 if len(weight) == 300 else 0), (0, 0)))
        return mx.array(stored(padded, precision).dense()[: len(weight)])

    track = model.tracks[0]
    for layer in track.model.layers:
        for part, names in ((layer.self_attn, "qkvo"), (layer.mlp, ("gate", "up", "down"))):
            for name in names:
                part[f"{name}_proj"].weight = decoded(part[f"{name}_proj"].weight)
    track.lm_head.weight = decoded(track.lm_head.weight)


class ReadsAgain(StateBySlices):
    """What looks right: the state is read before each update."""

    def write(self, keys, values):
        self._full = mb.read_state(input=self._state)
        return super().write(keys, values)


@pytest.mark.parametrize("passes", ["ours", "coremltools"])
def test_a_state_that_is_read_again_is_caught(passes, tmp_path, monkeypatch):
    monkeypatch.setattr(graph, "StateBySlices", ReadsAgain)
    write(tmp_path / "draft")
    opened = Draft(tmp_path / "draft", TINY)
    part = planned(opened, TINY)[1]
    made = graph.program(part, packages.contents(opened, part, TINY), TINY)
    package = tmp_path / "bad.mlpackage"
    if passes == "ours":
        packages.convert(made, package)
    else:
        with quiet():
            ct.convert(
                made, source="milinternal", convert_to="mlprogram", minimum_deployment_target=ct.target.macOS15,
                skip_model_load=True, package_dir=str(package),
            )  # fmt: skip
    with pytest.raises(DraftError, match=r"read twice|before a write|before another write"):
        checks.check(package, stateful=True, max_bytes=1e9)
