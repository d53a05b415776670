"""Converted drafts of several tracks, with a head of their own, against the MLX model."""

import pytest
from test_convert import compare

QWEN2 = {"model_type": "qwen2", "num_attention_heads": 2, "num_hidden_layers": 2, "hidden_size": 128}
CASES = {
    "qwen2, two tracks, tied, blended, stateless": (
        {"tracks": 2}, QWEN2, {"write": "blend", "stateful": False},
    ),
    "qwen3, two tracks, trimmed and factored, blended": (
        {"tracks": 2, "head_rank": 8, "head_size": 100, "streams": 2}, {"num_hidden_layers": 2}, {"write": "blend"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_tracks_exchange_at_the_boundary_and_at_the_head(case, tmp_path, monkeypatch):
    manifest = compare(*CASES[case], tmp_path, monkeypatch)
    assert [package.track for package in manifest.packages] == [0, 0, 1, 1, 0]
    assert manifest.packages[-1].functions == ("rollout",)
    assert manifest.packages[-1].state is None
