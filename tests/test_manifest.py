"""The manifest of a converted draft: read back as written, and every way it can be wrong is a line that says so."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_mlx.draft.package import manifest as manifests
from mirror_mlx.draft.package.manifest import Manifest, Package, Shapes, Source
from mirror_mlx.errors import DraftError

SHAPES = Shapes(
    hidden_size=64, vocab_size=300, head_size=300, streams=3, tracks=1, boundary=1, num_layers=3, head_dim=32,
    context=128, first=32, second=64, prefill=64, buckets=16,
)  # fmt: skip


def package(file, layers, *, expands=False, heads=False, contents=None):
    state = (2 * (layers[1] - layers[0]), 2, SHAPES.context, SHAPES.head_dim)
    return Package(file, 0, layers, expands, heads, state, ("rollout", "prefill"), contents or {})


GOOD = Manifest(
    name="tiny", draft=Source("tiny", "qwen3", "ab", "cd"), shapes=SHAPES, num_draft_tokens=7,
    frequencies=tuple(0.5**i for i in range(16)), precision="float16", write="slice", stateful=True,
    packages=(package("segment-1.mlpackage", (0, 1)), package("segment-2.mlpackage", (1, 3), expands=True, heads=True)),
    versions={"coremltools": "9.0"}, parity={"float32_top1": 1.0},
)  # fmt: skip


def written(made=GOOD):
    return json.loads(json.dumps(made.to_json()))


def test_it_is_read_back_as_it_was_written():
    GOOD.check()
    assert Manifest.of(written()) == GOOD


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "format 2, and this version reads 1: convert"),
        ({"precision": "float8"}, "precision cannot be 'float8'"),
        ({"shapes": None}, "shapes is missing"),
        ({"frequencies": [0.1]}, "frequencies and head_dim"),
        ({"stateful": 1}, "stateful cannot be '1'"),
        ({"packages": []}, "packages must be a list"),
        ({"extra": 1}, "missing or unknown: extra"),
        ({"parity": {"top1": "high"}}, "parity cannot be"),
    ],
)
def test_what_it_cannot_be(change, said):
    with pytest.raises(DraftError, match=said):
        Manifest.of(written() | change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shapes": replace(SHAPES, context=32)}, "more columns than there are slots"),
        ({"shapes": replace(SHAPES, boundary=3)}, "boundary"),
        ({"shapes": replace(SHAPES, num_layers=4)}, "layers are missing"),
        ({"packages": GOOD.packages[:1]}, "layers are missing"),
        ({"packages": (GOOD.packages[0], replace(GOOD.packages[1], heads=False))}, "the head is not last"),
        ({"packages": (GOOD.packages[0], replace(GOOD.packages[1], expands=False))}, "begins the streams"),
    ],
)
def test_what_contradicts_itself(change, said):
    with pytest.raises(DraftError, match=said):
        Manifest.of(written(replace(GOOD, **change)))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_anything_else_is_one_line(data):
    with pytest.raises(DraftError):
        Manifest.of(data)


@given(st.sampled_from(sorted(written())), st.none() | st.integers() | st.text() | st.lists(st.integers()))
def test_any_part_of_another_kind_is_an_error(name, value):
    if value == written()[name]:
        return
    try:
        made = Manifest.of(written() | {name: value})
    except DraftError:
        return
    assert isinstance(value, str)
    assert getattr(made, name) == value


def test_files_are_checked(tmp_path):
    for name in ("segment-1.mlpackage", "segment-2.mlpackage"):
        (tmp_path / name / "Data").mkdir(parents=True)
        (tmp_path / name / "Data" / "weight.bin").write_bytes(b"weights of " + name.encode())
    made = replace(
        GOOD, packages=tuple(replace(p, contents=manifests.contents(tmp_path / p.file)) for p in GOOD.packages)
    )
    (tmp_path / manifests.FILE).write_text(json.dumps(made.to_json()))
    assert manifests.read(tmp_path) == made
    manifests.verify(made, tmp_path)
    weights = tmp_path / "segment-2.mlpackage" / "Data" / "weight.bin"
    kept = weights.read_bytes()
    weights.write_bytes(b"x" + kept[1:])
    with pytest.raises(DraftError, match=r"weight.bin was changed after conversion: convert the draft again"):
        manifests.verify(made, tmp_path)
    weights.unlink()
    with pytest.raises(DraftError, match=r"weight.bin is missing"):
        manifests.verify(made, tmp_path)
    weights.write_bytes(kept)
    (weights.parent / "more").touch()
    with pytest.raises(DraftError, match="is no part of the package"):
        manifests.verify(made, tmp_path)


def test_what_is_no_manifest(tmp_path):
    with pytest.raises(DraftError, match="cannot be read"):
        manifests.read(tmp_path)
    (tmp_path / manifests.FILE).write_text("{")
    with pytest.raises(DraftError, match="is damaged"):
        manifests.read(tmp_path)


def test_a_draft_is_known_by_its_contents(tmp_path):
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_text(name)
    before = manifests.source(tmp_path)
    (tmp_path / "README.md").write_text("words")
    assert manifests.source(tmp_path) == before
    (tmp_path / "model.safetensors").write_text("other")
    assert manifests.source(tmp_path)[0] != before[0]
    assert manifests.source(tmp_path)[1] == before[1]
