"""What is trained where nothing else is asked for. Read by `--help`, so nothing heavy is imported here."""

from typing import Any

ARCHITECTURE: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 896,
    "max_position_embeddings": 2048,
    "model_type": "qwen3",
    "num_attention_heads": 8,
    "num_hidden_layers": 8,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
"""The bundled demo target: Qwen3 with 8.1 M parameters at 4,096 entries of vocabulary."""

SHAPE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "max_position_embeddings",
)
"""The keys of a config.json that are flags as well."""
