"""The converter's parts, without a conversion: options, plan, rotation, weights, precision, rules."""

import json
import logging
import math
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.models.rope_utils import initialize_rope
from models import save_tiny
from streams import tiny

logging.disable(logging.WARNING)
pytest.importorskip("coremltools")
logging.disable(logging.NOTSET)

from mirror_mlx.convert import head, precision  # noqa: E402
from mirror_mlx.convert.checks import Operation, check_shapes, check_states  # noqa: E402
from mirror_mlx.convert.options import MAX_GROUPS, MAX_SIZE, Build  # noqa: E402
from mirror_mlx.convert.plan import planned  # noqa: E402
from mirror_mlx.convert.rope import frequencies  # noqa: E402
from mirror_mlx.convert.weights import Draft  # noqa: E402
from mirror_mlx.draft.streaming import save  # noqa: E402
from mirror_mlx.errors import DraftError, UsageError  # noqa: E402

WIDE = {"hidden_size": 64, "head_dim": 32, "vocab_size": 300}


def folder(path: Path, own=None, **base):
    model = tiny(own, **WIDE | base)
    path.mkdir(exist_ok=True)
    save(model, path)
    (path / "config.json").write_text(json.dumps(model.config.to_json()))
    return model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": 33}, "first is 33: it must be a multiple of 32"),
        ({"context": 96}, "context is 96: a window of 7 and passes of 32 and 64 columns need 104 slots"),
        ({"second": 32, "first": 64}, "second is 32 and first 64"),
        ({"precision": "int4"}, "precision is 'int4': choose from float16"),
        ({"write": "scatter"}, "choose from slice, blend"),
        ({"buckets": 0}, "buckets is 0"),
        ({"buckets": 16_384}, "must be in 1 … 8192"),
        ({"max_bytes": 0}, "max_bytes is 0"),
        ({"num_draft_tokens": 0}, "num_draft_tokens is 0"),
    ],
)
def test_options_that_cannot_be_are_named(options, message):
    with pytest.raises(UsageError, match=message):
        Build(**options).check()


@given(st.integers(1, 300_000), st.integers(1, 2000))
def test_buckets_and_parts_of_the_head_fit_the_device(rows, asked):
    buckets = Build(buckets=asked).buckets_for(rows)
    whole = head.padded(rows, buckets)
    assert 1 <= buckets <= rows
    assert whole // buckets <= MAX_GROUPS
    assert 0 <= whole - rows < buckets
    assert 0 < head.part_size(buckets) < MAX_SIZE
    assert head.part_size(buckets) % buckets == 0


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ({"head_dim": 16}, "head_dim is 16.*multiple of 32"),
        ({"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "DynamicNTKScalingRoPE"),
        ({"model_type": "llama", "rope_traditional": True}, "rope_traditional"),
        ({"model_type": "mistral", "sliding_window": 512}, "sliding_window is 512, below the context 1024"),
        ({"intermediate_size": 20_000}, "intermediate_size is 20000"),
    ],
)
def test_drafts_that_cannot_be_converted_are_refused(base, message, tmp_path):
    folder(tmp_path, **base)
    with pytest.raises(DraftError, match=message):
        Draft(tmp_path, Build())


def test_weights_that_float16_cannot_hold_are_refused(tmp_path):
    model = folder(tmp_path)
    model.tracks[0].model.layers[1].mlp.up_proj.weight *= 1e6
    save(model, tmp_path)
    draft = Draft(tmp_path, Build())
    draft.block(0, 0)
    with pytest.raises(DraftError, match="layer 1 is too large for float16"):
        draft.block(0, 1)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_quantised_draft_is_dequantised(streaming, tmp_path):
    if streaming:
        model = folder(tmp_path, intermediate_size=64)
        nn.quantize(model, 32, 8)
        save(model, tmp_path)
        layers, embeddings = model.tracks[0].model.layers, model.tracks[0].model.embed_tokens
        config = model.config.to_json()
    else:
        save_tiny(tmp_path, **WIDE, intermediate_size=64, tie_word_embeddings=True)
        config = json.loads((tmp_path / "config.json").read_text())
        model = Draft(tmp_path, Build())._model
        nn.quantize(model, 32, 8)
        model.save_weights(str(tmp_path / "model.safetensors"))
        layers, embeddings = model.model.layers, model.model.embed_tokens
    config["quantization"] = {"group_size": 32, "bits": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    draft = Draft(tmp_path, Build())

    def whole(module):
        found = mx.dequantize(module.weight, module.scales, module.biases, group_size=32, bits=8)
        return np.array(found.astype(mx.float16))

    np.testing.assert_array_equal(draft.block(0, 1).q.weight.dense(), whole(layers[1].self_attn.q_proj))
    (part,) = draft.head_rows(512, 300)
    np.testing.assert_array_equal(part.weight.dense(), whole(embeddings))


def test_packages_are_cut_at_the_boundary_and_below_the_limit(tmp_path):
    folder(tmp_path, {"boundary": 2, "tracks": 2}, num_hidden_layers=5, vocab_size=64)
    draft = Draft(tmp_path, Build())
    parts = planned(draft, Build())
    assert [(part.file, part.start, part.stop) for part in parts] == [
        ("track-1-segment-1.mlpackage", 0, 2), ("track-1-segment-2.mlpackage", 2, 5),
        ("track-2-segment-1.mlpackage", 0, 2), ("track-2-segment-2.mlpackage", 2, 5), ("head.mlpackage", 5, 5),
    ]  # fmt: skip
    small = planned(draft, Build(max_bytes=24_000))
    assert [part.start for part in small if part.track == 0] == [0, 1, 2, 3, 4, 5]
    assert [part.expands for part in small if part.track == 1] == [False, False, True, False, False]
    with pytest.raises(DraftError, match="choose a smaller precision"):
        planned(draft, Build(max_bytes=1000))


@pytest.mark.parametrize(
    "scaling",
    [
        None, {"type": "linear", "factor": 4.0},
        {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64, "low_freq_factor": 1.0},
    ],
)  # fmt: skip
def test_frequencies_turn_as_the_module_does(scaling):
    rope = initialize_rope(64, 500_000.0, False, scaling, 2048)
    found = np.array(frequencies(rope, 64))
    x = np.random.default_rng(1).standard_normal((1, 1, 1, 64)).astype(np.float32)
    for position in (3, 450):
        angles = np.tile(position * found, 2)
        half = np.concatenate([-x[..., 32:], x[..., :32]], -1)
        turned = x * np.cos(angles) + half * np.sin(angles)
        np.testing.assert_allclose(turned, np.array(rope(mx.array(x), offset=position)), atol=1e-3)
    with pytest.raises(DraftError, match="whole halves"):
        frequencies(initialize_rope(32, 10_000.0, False, scaling, 2048), 64)


def test_int8_is_about_half_a_step_off_at_most():
    weight = (np.random.default_rng(0).standard_normal((64, 48)) * np.logspace(-3, 1, 64)[:, None]).astype(np.float16)
    found = precision.stored(weight, "int8")
    step = found.arguments["scale"].astype(np.float32).reshape(64, 1)
    assert (np.abs(found.dense() - weight) <= 0.6 * step + 1e-7).all()


@given(st.integers(0, 1000), st.sampled_from([16, 64]))
def test_a_palette_is_nearly_as_good_as_for_a_normal_distribution_it_can_be(seed, count):
    values = np.random.default_rng(seed).standard_normal(4096)
    found = precision.palette(values, count)
    assert (np.diff(found) >= 0).all()
    error = np.mean(np.abs(values[:, None] - found).min(1) ** 2)
    assert error < 1.2 * math.pi * math.sqrt(3) / 2 / count**2  # Panter and Dite


def test_palettes_are_of_rows_that_are_together():
    weight = np.repeat(np.array([[1.0], [5.0]], np.float16), 16, axis=0) * np.ones((1, 200), np.float16)
    found = precision.stored(weight, "lut4")
    assert found.arguments["lut"].shape == (2, 1, 1, 1, 16, 1)
    np.testing.assert_array_equal(found.dense(), weight)


def op(kind, gives=None, **takes):
    return Operation(kind, {name: (value,) for name, value in takes.items()}, {gives: (2, 2, 64, 32)} if gives else {})


READ = op("read_state", "a", input="kv")
LAYER = [op("layer_norm"), op("softmax")]
STATE = {"kv": (2, 2, 64, 32)}


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([READ, op("slice_update", "b", x="a"), op("write_state", input="kv", data="b"),
          op("read_state", "c", input="kv"), op("slice_update", "d", x="c"),
          op("write_state", input="kv", data="d")], None),
        ([READ, op("concat", "b", values="n"), op("write_state", input="kv", data="b")], None),
        ([READ, op("read_state", "c", input="kv")], "read twice"),
        ([READ, op("slice_update", "b", x="a"), op("write_state", input="kv", data="b"),
          op("slice_update", "d", x="a")], "as it was before a write"),
        ([READ, op("slice_update", "b", x="a"), op("slice_update", "d", x="a"),
          op("write_state", input="kv", data="b"), op("write_state", input="kv", data="d")], "before another write"),
        ([READ], "never written"),
    ],
)  # fmt: skip
def test_the_order_of_reads_and_writes(operations, message):
    if message is None:
        return check_states([*LAYER, *operations], STATE, True, "here")
    with pytest.raises(DraftError, match=f"here: .*{message}"):
        check_states([*LAYER, *operations], STATE, True, "here")


def test_the_number_and_width_of_states():
    with pytest.raises(DraftError, match="2 states"):
        check_states(LAYER, STATE | {"more": (1, 1, 1, 32)}, True, "here")
    with pytest.raises(DraftError, match="1 states"):
        check_states(LAYER, STATE, False, "here")
    with pytest.raises(DraftError, match="48 wide"):
        check_states(LAYER, {"kv": (2, 2, 64, 48)}, True, "here")


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (Operation("gather", {}, {"y": (1,)}), "operation gather is not known"),
        (Operation("add", {}, {"y": (1, None)}), "y has no fixed shape"),
        (Operation("conv", {"x": ("x",), "weight": ("thin",)}, {"y": (1, 64, 1, 8)}), "weight of 3 axes"),
        (Operation("conv", {"x": ("tall",), "weight": ("w",)}, {"y": (1, 64, 4, 8)}), r"not \(1, C, 1, S\)"),
        (Operation("conv", {"x": ("x",), "weight": ("w",)}, {"y": (1, 16_385, 1, 8)}), "at most 16384"),
    ],
)  # fmt: skip
def test_shapes_the_device_does_not_take(operation, message):
    shapes = {"x": (1, 32, 1, 8), "tall": (1, 32, 4, 8), "w": (64, 32, 1, 1), "thin": (64, 32, 1)}
    with pytest.raises(DraftError, match=message):
        check_shapes([operation], shapes, "here")
