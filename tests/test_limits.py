from types import SimpleNamespace

import pytest
import zoo

from mirror_mlx.limits import context_length


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({}, None),
        ({"max_position_embeddings": None}, None),
        ({"max_position_embeddings": 1000, "rope_scaling": {"factor": 8.0}}, 1000),
        (
            {
                "max_position_embeddings": 1000,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 1000},
            },
            4000,
        ),
        ({"max_position_embeddings": 8000, "rope_scaling": {"original_max_position_embeddings": 1000}}, 8000),
        ({"text_config": {"max_position_embeddings": 77}}, 77),
    ],
)
def test_the_context_a_model_is_made_for(args, expected):
    assert context_length(SimpleNamespace(args=SimpleNamespace(**args))) == expected


def test_the_zoos_contexts_are_found():
    assert context_length(zoo.tiny("qwen3")) == 1024
    assert context_length(zoo.tiny("gemma3")) == 1024
