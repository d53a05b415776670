"""Converted drafts against the MLX model: the saved packages, executed in float32, on prompts and branches."""

import dataclasses
import json
import logging
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_map
from models import END
from streams import tiny

logging.disable(logging.WARNING)
pytest.importorskip("coremltools")
logging.disable(logging.NOTSET)

from mirror_mlx.convert import head  # noqa: E402
from mirror_mlx.convert.convert import convert  # noqa: E402
from mirror_mlx.convert.options import Build  # noqa: E402
from mirror_mlx.draft.package import manifest as manifests  # noqa: E402
from mirror_mlx.draft.package import parts, segments  # noqa: E402
from mirror_mlx.draft.package.reference import ReferenceHost  # noqa: E402
from mirror_mlx.draft.package.segments import PackageSegments  # noqa: E402
from mirror_mlx.draft.streaming import MlxSegments, save  # noqa: E402
from mirror_mlx.draft.streaming.layout import Feed, lay_out  # noqa: E402

# 64^-0.5 is a number that float16 has.
SIZES = {"hidden_size": 64, "head_dim": 64, "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 300}
TINY = Build(first=32, second=32, prefill=32, context=128)
LLAMA = {"model_type": "llama", "attention_bias": True, "mlp_bias": True,
         "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}}  # fmt: skip
CASES = {
    # what: keys of the `mirror` part, keys of config.json, options
    "qwen3, own head in parts, wide second": (
        {}, {"tie_word_embeddings": False}, {"second": 64, "prefill": 64, "context": 160, "buckets": 32},
    ),
    "llama, tied, no streams, stateless, small packages": (
        {"streams": 0}, LLAMA, {"stateful": False, "max_bytes": 2.2e5},
    ),
}  # fmt: skip


def rounded(model):
    """The same model, its weights numbers that float16 has."""
    model.update(tree_map(lambda w: w if w.dtype == mx.uint32 else w.astype(mx.float16), model.parameters()))
    model.update(tree_map(lambda w: w if w.dtype == mx.uint32 else w.astype(mx.float32), model.parameters()))
    return model


def write(folder: Path, own=None, **base):
    """A draft folder; returns its model."""
    model = rounded(tiny({"boundary": 1} | (own or {}), **SIZES | base))
    folder.mkdir()
    save(model, folder)
    (folder / "config.json").write_text(json.dumps(model.config.to_json()))
    return model


def host(manifest, folder, draft, monkeypatch):
    """Segments of these packages that give them angles, and keep keys and values, in float32."""
    real = segments.columns

    def exact(rows, used, width, manifest):
        made = real(rows, used, width, manifest)
        angles = np.zeros(made["cos"].shape, np.float32)
        angles[0, 0, : len(rows.positions)] = np.outer(rows.positions, np.tile(manifest.frequencies, 2))
        return made | {"cos": np.cos(angles), "sin": np.sin(angles)}

    monkeypatch.setattr(segments, "columns", exact)
    made = PackageSegments(manifest, ReferenceHost(manifest, folder), parts.read(draft, manifest.shapes))
    made._slots = {number: slots.astype(np.float32) for number, slots in made._slots.items()}
    return made


def worst(ours: MlxSegments, theirs: PackageSegments, layout, rows, ids):
    """The largest difference of what the two say of these rows: of the best logits, of the logarithms of the sums; and
    whether the best tokens are the same."""
    said, found = np.array(ours.run(layout, rows).logits), theirs.run(layout, rows)
    errors, same = [], []
    for bucket in range(found.ids.shape[1]):
        part = said[:, bucket :: found.ids.shape[1]]
        errors.append(np.abs(part.max(1) - found.logits[:, bucket]))
        errors.append(np.abs(np.log(np.exp(part - part.max(1, keepdims=True)).sum(1)) - np.log(found.sums[:, bucket])))
        chosen = np.searchsorted(ids, found.ids[:, bucket])
        same.append(np.abs(said[np.arange(len(rows)), chosen] - part.max(1)) < 1e-3)
        assert (ids[chosen] == found.ids[:, bucket]).all()
        assert (chosen % found.ids.shape[1] == bucket).all()
    return np.max(errors), np.all(same)


@pytest.mark.parametrize("case", CASES)
def test_a_prompt_in_chunks_and_branches_say_what_the_model_says(case, tmp_path, monkeypatch):
    monkeypatch.setattr(head, "MAX_SIZE", 257)  # so that a head of 300 rows has parts
    manifest = compare(*CASES[case], tmp_path, monkeypatch)
    if "small packages" in case:
        assert [package.layers for package in manifest.packages] == [(0, 1), (1, 2), (2, 3)]


def compare(own, base, options, tmp_path, monkeypatch):
    """Convert a tiny draft and put it and its packages to the same text and branches; returns the manifest."""
    build = dataclasses.replace(TINY, **options)
    model = write(tmp_path / "draft", own, **base)
    steps = []
    manifest = convert(
        tmp_path / "draft", tmp_path / "out", build, report=lambda done, total, what: steps.append((done, total))
    )
    assert steps == [(done + 1, steps[-1][1]) for done in range(steps[-1][1])]
    assert manifests.read(tmp_path / "out") == manifest
    manifests.verify(manifest, tmp_path / "out")
    ours, theirs = MlxSegments(model), host(manifest, tmp_path / "out", tmp_path / "draft", monkeypatch)
    rng = np.random.default_rng(0)
    text = rng.integers(0, 300, build.prefill + 8).tolist()
    for one in (ours, theirs):
        one.prefill(text)
    ids = np.arange(300) if model.token_ids is None else np.array(model.token_ids)
    used, streams = len(text), manifest.shapes.streams
    feeds = [Feed(used, [], [5, 6], "none"), Feed(used - 2, [], [9]), Feed(used - 5, [], [7, 8])]
    layout = lay_out(feeds, used, streams)
    error, same = worst(ours, theirs, layout, range(len(layout.source)), ids)
    assert error < 1e-3
    assert same
    # Both branches go on, over the slots of the streams.
    again = [Feed(used - 2, layout.slots(1), [11]), Feed(used - 5, layout.slots(2), [12, END])]
    layout = lay_out(again, theirs.used, streams)
    error, same = worst(ours, theirs, layout, range(len(layout.source)), ids)
    assert error < 1e-3
    assert same
    return manifest
