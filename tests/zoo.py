"""Tiny random-weight models, one for every text decoder of mlx-lm that runs here.

`names()` lists the model types and `tiny(model_type)` builds one of them through mlx-lm's own classes. The
configurations are small in every direction: windows and chunks of a few tokens, so that a short generation runs
past them, and at least one layer of every kind that a hybrid has.

Left out are `bitnet` and `muse_spark` (their kernels are Metal only), `olmo` (mlx-lm 0.32 adds the mask "causal"
to its scores, and fails), and `prism_hadamard_qwen35` (qwen3_5 with weights packed to two bits).
"""

import copy
import re
from typing import Any

import mirror_mlx  # noqa: F401  (before mlx: it loads a fast BLAS on Linux)

# isort: split
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import _get_classes

Config = dict[str, Any]


def cfg(*parts: Config, **own: Any) -> Config:
    """A configuration: some shared parts, then what it has of its own."""
    merged: Config = {}
    for part in (*parts, own):
        merged |= part
    return merged


def text(*parts: Config, **own: Any) -> Config:
    """A configuration that keeps the language model's under `text_config`."""
    return {"text_config": cfg(BASE, *parts, **own)}


VOCAB = 130  # no other dimension has this size, so it tells embeddings and output heads
WINDOW = 8
FULL, SLIDING = "full_attention", "sliding_attention"

# fmt: off
# What most configurations share. mlx-lm ignores the keys that a model type does not have.
BASE = cfg(
    vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=1024, rope_theta=10000.0, rms_norm_eps=1e-5,
    layer_norm_eps=1e-5, layer_norm_epsilon=1e-5, norm_eps=1e-5, tie_word_embeddings=False,
    attention_bias=False, mlp_bias=False, use_bias=False, sliding_window=WINDOW
)
MOE = cfg(
    num_experts=4, num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2, num_experts_per_token=2,
    num_shared_experts=1, n_shared_experts=1, moe_intermediate_size=32, shared_intermediate_size=32,
    shared_expert_intermediate_size=32, norm_topk_prob=True, routed_scaling_factor=1.0,
    first_k_dense_replace=1, decoder_sparse_step=1, mlp_only_layers=[0], n_group=1, topk_group=1,
    scoring_func="sigmoid", topk_method="noaux_tc"
)
GROUPED_MOE = cfg(MOE, n_routed_experts=8, num_experts=8, n_group=2)
MLA = cfg(kv_lora_rank=24, q_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16)
INDEXER = cfg(index_head_dim=16, index_n_heads=16, index_topk=12)
DELTA = cfg(
    linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=32, linear_value_head_dim=16,
    linear_conv_kernel_dim=4
)
KDA = cfg(
    num_heads=4, head_dim=32, short_conv_kernel_size=4, kda_layers=[1, 3], full_attn_layers=[2, 4]
)
GRANITE = cfg(
    logits_scaling=1.0, attention_multiplier=0.25, embedding_multiplier=2.0, residual_multiplier=0.8
)
LFM = cfg(
    conv_bias=False, conv_L_cache=3, block_dim=64, block_multiple_of=8, block_ffn_dim_multiplier=1.0,
    block_auto_adjust_ff_dim=False, layer_types=["conv", FULL, "conv", FULL]
)
LONGCAT = cfg(
    MLA, num_layers=2, attention_method="MLA", zero_expert_type="identity", zero_expert_num=2,
    ffn_hidden_size=96, expert_ffn_hidden_size=32, n_routed_experts=4, moe_topk=2, routed_scaling_factor=1.0,
    mla_scale_q_lora=True, mla_scale_kv_lora=True
)
GEMMA4 = cfg(
    num_hidden_layers=5, layer_types=[SLIDING, FULL, SLIDING, SLIDING, FULL], num_kv_shared_layers=2,
    global_head_dim=32, vocab_size_per_layer_input=VOCAB, hidden_size_per_layer_input=0,
    tie_word_embeddings=True
)
HYBRID = cfg(layer_types=[SLIDING, FULL, SLIDING, FULL])
YARN = cfg(rope_type="yarn", factor=4.0, original_max_position_embeddings=256)
TWO_ROPES = {
    FULL: cfg(YARN, rope_theta=10000.0, partial_rotary_factor=0.5),
    SLIDING: cfg(rope_type="default", rope_theta=10000.0),
}
MISTRAL_ROPE = cfg(YARN, rope_theta=10000.0, llama_4_scaling_beta=0.1)
LONGROPE = cfg(original_max_position_embeddings=256, short_factor=1.0, long_factor=1.0)

# What each model type has beyond BASE.
ZOO: dict[str, Config] = {
    "Klear": cfg(MOE),
    "afm7": cfg(
        hidden_dim=64, num_layers=4, num_kv_reuse_layers=2, num_heads=4, num_kv_heads=2,
        hidden_dim_scale_factor=1.5
    ),
    "afmoe": cfg(MOE, HYBRID, num_dense_layers=1, route_scale=1.0),
    "apertus": cfg(post_norm=False, qk_norm=True),
    "baichuan_m1": cfg(sliding_window_layers=[0, 2], conv_window=2, num_swa_attention_heads=2),
    "bailing_hybrid": cfg(GROUPED_MOE, MLA, layer_group_size=2, group_norm_size=2),
    "bailing_moe": cfg(GROUPED_MOE, moe_router_enable_expert_bias=True, score_function="sigmoid"),
    "bailing_moe_linear": cfg(GROUPED_MOE, layer_group_size=2, group_norm_size=2, use_qk_norm=True),
    "bailing_moe_v3": cfg(GROUPED_MOE, MLA, moe_shared_expert_intermediate_size=32, layer_group_size=2),
    "cohere": cfg(logit_scale=1.0, use_qk_norm=True),
    "cohere2": cfg(logit_scale=1.0, sliding_window_pattern=2),
    "dbrx": cfg(
        d_model=64, n_layers=3, n_heads=4,
        ffn_config=cfg(ffn_hidden_size=48, moe_num_experts=4, moe_top_k=2),
        attn_config=cfg(kv_n_heads=2, clip_qkv=8.0, rope_theta=10000.0)
    ),
    "deepseek": cfg(MOE),
    "deepseek_v2": cfg(GROUPED_MOE, MLA, topk_method="group_limited_greedy", rope_scaling=YARN),
    "deepseek_v3": cfg(GROUPED_MOE, MLA),
    "deepseek_v32": cfg(GROUPED_MOE, MLA, INDEXER),
    "deepseek_v41": cfg(
        MOE, MLA, INDEXER, head_dim=24, index_head_dim=24, o_groups=2, o_lora_rank=16,
        compress_ratios=[0, 4, 4, 4], kv_source_layer_ids=[1], index_source_layer_ids=[1, 2], index_topk=4,
        candidate_source_layer_id=1, candidate_topk_blocks=3, candidate_block_size=2, hc_mult=2,
        hc_sinkhorn_iters=4, rms_norm_eps=1e-6
    ),
    "dots1": cfg(GROUPED_MOE),
    "ernie4_5": cfg(),
    "ernie4_5_moe": cfg(MOE, moe_num_experts=4, moe_k=2, moe_num_shared_experts=1),
    "exaone": cfg(num_layers=4),
    "exaone4": cfg(sliding_window_pattern="LLGL", rope_scaling=None),
    "exaone_moe": cfg(GROUPED_MOE, HYBRID, is_moe_layer=[False, True, True, True]),
    "falcon_h1": cfg(
        lm_head_multiplier=1.0, embedding_multiplier=2.0, mamba_d_head=16, mamba_d_ssm=64, mamba_d_state=16,
        mamba_n_heads=4
    ),
    "falcon_mamba": cfg(state_size=8, conv_kernel=4, use_conv_bias=True, time_step_rank=8),
    "gear": cfg(layer_types=[SLIDING, "conv_mixer", FULL, "conv_mixer"]),
    "gemma": cfg(),
    "gemma2": cfg(query_pre_attn_scalar=16.0),
    "gemma3": text(model_type="gemma3_text", query_pre_attn_scalar=16, sliding_window_pattern=2),
    "gemma3_text": cfg(query_pre_attn_scalar=16, sliding_window_pattern=2),
    "gemma3n": text(
        model_type="gemma3n", num_hidden_layers=5, layer_types=[SLIDING, FULL, SLIDING, SLIDING, FULL],
        num_kv_shared_layers=2, vocab_size_per_layer_input=VOCAB, hidden_size_per_layer_input=16,
        rope_local_base_freq=10000.0, final_logit_softcapping=30.0,
        activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0, 0.0], altup_num_inputs=2, altup_coef_clip=120.0,
        altup_correct_scale=True, altup_active_idx=0, laurel_rank=8
    ),
    "gemma4": text(
        GEMMA4, model_type="gemma4_text", enable_moe_block=True, num_experts=4, top_k_experts=2,
        moe_intermediate_size=32, attention_k_eq_v=True, num_global_key_value_heads=1
    ),
    "gemma4_text": cfg(GEMMA4, hidden_size_per_layer_input=16),
    "glm": cfg(),
    "glm4": cfg(partial_rotary_factor=0.5),
    "glm4_moe": cfg(GROUPED_MOE, rope_scaling=None, use_qk_norm=True, partial_rotary_factor=0.5),
    "glm4_moe_lite": cfg(GROUPED_MOE, MLA, num_nextn_predict_layers=0),
    "glm_moe_dsa": cfg(GROUPED_MOE, MLA, INDEXER, moe_layer_freq=1, rope_parameters=cfg(rope_theta=10000.0)),
    "gpt2": cfg(n_ctx=1024, n_embd=64, n_head=4, n_layer=3, n_positions=1024),
    "gpt_bigcode": cfg(n_embd=64, n_layer=3, n_inner=96, n_head=4, n_positions=1024),
    "gpt_neox": cfg(rotary_emb_base=10000, rotary_pct=0.5),
    "gpt_oss": cfg(MOE, HYBRID),
    "gptj": cfg(n_embd=64, n_head=4, rotary_dim=8, n_layer=3, n_positions=1024),
    "granite": cfg(GRANITE),
    "granitemoe": cfg(GRANITE, MOE),
    "granitemoehybrid": cfg(
        GRANITE, MOE, layer_types=["mamba", "attention", "mamba", "attention"], mamba_n_heads=4,
        mamba_d_head=16, mamba_proj_bias=False, mamba_d_state=16, mamba_d_conv=4, mamba_n_groups=1,
        mamba_conv_bias=True
    ),
    "helium": cfg(),
    "hunyuan": cfg(
        moe_topk=2, num_experts=4, num_shared_expert=1, use_mixed_mlp_moe=True, use_qk_norm=True,
        use_cla=True, cla_share_factor=2, rope_scaling=cfg(type="dynamic", alpha=100.0, factor=1.0)
    ),
    "hunyuan_v1_dense": cfg(rope_scaling=cfg(type="dynamic", alpha=100.0, factor=1.0)),
    "internlm2": cfg(rope_scaling=cfg(type="dynamic", factor=2.0)),
    "internlm3": cfg(),
    "iquestloopcoder": cfg(loop_window_size=WINDOW),
    "jamba": cfg(
        MOE, attn_layer_offset=1, attn_layer_period=2, expert_layer_offset=1, expert_layer_period=2,
        mamba_d_conv=4, mamba_d_state=8, mamba_expand=2
    ),
    "kimi_k25": text(GROUPED_MOE, MLA),
    "kimi_k3": text(
        MOE, MLA, linear_attn_config=cfg(KDA, gate_lower_bound=-5.0, use_full_rank_gate=True),
        attn_res_block_size=2, mla_use_output_gate=True, routed_expert_hidden_size=32, latent_moe_use_norm=True
    ),
    "kimi_linear": cfg(MOE, MLA, linear_attn_config=KDA, model_max_length=1024),
    "kimi_vl": text(GROUPED_MOE, MLA),
    "laguna": cfg(MOE, HYBRID, num_attention_heads_per_layer=[2, 4, 2, 4], rope_parameters=TWO_ROPES),
    "lfm2": cfg(LFM, conv_bias=True),
    "lfm2-vl": text(LFM, model_type="lfm2"),
    "lfm2_moe": cfg(MOE, LFM, use_expert_bias=True, num_dense_layers=1),
    "lille-130m": cfg(block_size=1024, n_embd=64, n_head=4, n_kv_heads=2, n_layer=3),
    "llama": cfg(rope_scaling=cfg(YARN, rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0)),
    "llama4": text(
        MOE, model_type="llama4_text", attention_chunk_size=WINDOW, interleave_moe_layer_step=2,
        intermediate_size_mlp=64, num_experts_per_tok=1, rope_scaling=None, use_qk_norm=True
    ),
    "llama4_text": cfg(intermediate_size_mlp=96, no_rope_layers=[1, 1, 1, 0], use_qk_norm=False),
    "longcat_flash": cfg(LONGCAT),
    "longcat_flash_ngram": cfg(LONGCAT, ngram_vocab_size_ratio=4),
    "mamba": cfg(state_size=8, conv_kernel=4, use_conv_bias=True, time_step_rank=8),
    "mamba2": cfg(
        num_heads=8, intermediate_size=128, state_size=16, conv_kernel=4, n_groups=2, use_conv_bias=True,
        time_step_limit=(0.001, 100.0), time_step_rank="auto"
    ),
    "mellum": cfg(MOE, HYBRID, rope_parameters=TWO_ROPES),
    "mimo": cfg(num_nextn_predict_layers=0),
    "mimo_v2_flash": cfg(
        MOE, hybrid_layer_pattern=[0, 1, 1, 0], moe_layer_freq=[0, 1, 1, 1],
        add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False, sliding_window_size=WINDOW,
        layernorm_epsilon=1e-5, swa_rope_theta=10000.0, swa_num_attention_heads=4,
        swa_num_key_value_heads=1, swa_head_dim=16, swa_v_head_dim=8, v_head_dim=8, partial_rotary_factor=0.5
    ),
    "minicpm": cfg(dim_model_base=64, scale_depth=1.4, scale_emb=4.0),
    "minicpm3": cfg(MLA, rope_scaling=LONGROPE, dim_model_base=64, scale_depth=1.4, scale_emb=4.0),
    "minimax": cfg(MOE, rotary_dim=8),
    "minimax_m3_vl": text(
        MOE, intermediate_size=32, dense_intermediate_size=96, moe_layer_freq=[0, 1, 1, 1],
        layer_types=[FULL, "sparse", FULL, "sparse"], index_n_heads=2, index_head_dim=16, index_block_size=4,
        index_topk_blocks=3
    ),
    "ministral3": cfg(HYBRID, rope_parameters=MISTRAL_ROPE),
    "mistral": cfg(HYBRID),
    "mistral3": text(HYBRID, model_type="ministral3", rope_parameters=MISTRAL_ROPE),
    "mistral4": cfg(GROUPED_MOE, MLA, rope_parameters=MISTRAL_ROPE),
    "mixtral": cfg(MOE),
    "muse_glimmer": cfg(HYBRID, output_multiplier=1.0),
    "nanbeige": cfg(num_hidden_layers=3, num_loops=2),
    "nanochat": cfg(),
    "nemotron": cfg(hidden_act="relu2"),
    "nemotron-nas": cfg(
        block_configs=[
            cfg(attention=cfg(n_heads_in_group=2), ffn=cfg(ffn_mult=1.0)),
            cfg(attention=cfg(no_op=True), ffn=cfg(ffn_mult=1.0)),
            cfg(attention=cfg(n_heads_in_group=4), ffn=cfg(no_op=True)),
            cfg(attention=cfg(replace_with_linear=True), ffn=cfg(replace_with_linear=True)),
        ]
    ),
    "nemotron_h": cfg(
        MOE, hybrid_override_pattern=["M", "*", "-", "M", "E"], mamba_num_heads=4, mamba_head_dim=16,
        mamba_proj_bias=False, ssm_state_size=16, conv_kernel=4, n_groups=2, use_conv_bias=True,
        moe_shared_expert_intermediate_size=32, moe_latent_size=32
    ),
    "olmo2": cfg(),
    "olmo3": cfg(HYBRID),
    "olmo_hybrid": cfg(DELTA, linear_allow_neg_eigval=True, layer_types=["linear_attention", FULL] * 2),
    "olmoe": cfg(MOE),
    "openelm": cfg(
        model_dim=64, num_transformer_layers=3, num_query_heads=[2, 4, 4], num_kv_heads=[1, 2, 2],
        ffn_dim_divisor=8, ffn_multipliers=[1.0, 1.5, 2.0]
    ),
    "phi": cfg(),
    "phi3": cfg(partial_rotary_factor=0.5, rope_scaling=cfg(LONGROPE, type="longrope")),
    "phi3small": cfg(
        dense_attention_every_n_layers=2, ff_intermediate_size=96, gegelu_limit=20.0,
        blocksparse_block_size=32, blocksparse_num_local_blocks=1, blocksparse_vert_stride=2,
        mup_attn_multiplier=4.0, mup_embedding_multiplier=1.0, mup_width_multiplier=1.0
    ),
    "phimoe": cfg(MOE, rope_scaling=cfg(LONGROPE, short_mscale=1.0, long_mscale=1.0)),
    "phixtral": cfg(num_vocab=VOCAB, model_dim=64, num_heads=4, num_layers=3, rotary_dim=8),
    "pixtral": text(model_type="llama"),
    "plamo": cfg(n_shared_head=2),
    "plamo2": cfg(hidden_size_per_head=16, mamba_d_state=16, mamba_num_heads=4, mamba_step=2),
    "plamo3": cfg(sliding_window_pattern=2),
    "qwen": cfg(kv_channels=16, intermediate_size=192),
    "qwen2": cfg(tie_word_embeddings=True),
    "qwen2_moe": cfg(MOE),
    "qwen2_vl": text(model_type="qwen2"),
    "qwen3": cfg(),
    "qwen3_5": text(DELTA, full_attention_interval=2),
    "qwen3_5_moe": text(MOE, DELTA, full_attention_interval=2),
    "qwen3_moe": cfg(MOE),
    "qwen3_next": cfg(MOE, DELTA, full_attention_interval=2, partial_rotary_factor=0.5),
    "qwen3_vl": text(model_type="qwen3"),
    "qwen3_vl_moe": text(MOE, model_type="qwen3_moe"),
    "recurrent_gemma": cfg(
        conv1d_width=4, logits_soft_cap=30.0, num_key_value_heads=1, attention_window_size=WINDOW,
        block_types=["recurrent", "recurrent", "attention"]
    ),
    "rwkv7": cfg(a_low_rank_dim=8, v_low_rank_dim=8, gate_low_rank_dim=8, decay_low_rank_dim=8),
    "seed_oss": cfg(),
    "smollm3": cfg(no_rope_layer_interval=2),
    "solar_open": cfg(GROUPED_MOE, partial_rotary_factor=1.0),
    "spark2_5": cfg(HYBRID, rope_parameters=TWO_ROPES),
    "stablelm": cfg(use_qkv_bias=True, partial_rotary_factor=0.5),
    "starcoder2": cfg(norm_epsilon=1e-5),
    "step3p5": cfg(
        HYBRID, num_attention_groups=2,
        attention_other_setting=cfg(num_attention_heads=2, num_attention_groups=1),
        partial_rotary_factors=[1.0, 0.5, 1.0, 0.5], moe_num_experts=4, moe_top_k=2,
        moe_intermediate_size=32, share_expert_dim=32, moe_router_scaling_factor=1.0
    ),
    "talkie": cfg(),
    "telechat3": cfg(),
    "youtu_llm": cfg(MLA),
}

# fmt: on

# The model types whose logits depend on how many tokens are fed at once, and why.
CHUNK_VARIANT = {
    "phi3small": "block-sparse layers add the boolean causal mask to the scores, so they see the rest of a chunk",
    "plamo3": "the mask of several tokens is a token wider than the cache, which is all that one token sees",
}

# Centre and spread of the parameters with a meaning of their own: a pattern of "model type.path" for each.
DRAWS: list[tuple[str, float, float]] = [
    (r"A_log$", 0.5, 0.4),
    (r"dt_bias$", -1.0, 0.5),
    (r"recurrent_param$", -2.0, 0.3),
    (r"conv_[kv]$", 0.5, 0.3),
    (r"quant_(key|value)_scale$", 1 / 64, 0.0),
    (r"^gemma2?\..*\.post_(attention|feedforward)_layernorm\.weight$", 1.5, 0.2),
    (r"^gemma(3n|4).*\.post_(attention|feedforward)_layernorm\.weight$", 4.0, 0.2),  # more than the embedding
    (r"^gemma(3n|4).*\.[qk]_norm\.weight$", 0.7, 0.1),  # no other scale
    (r"^gemma3.*\.[qk]_norm\.weight$", 0.5, 0.1),
    (r"^(gemma[23]?(_text)?|recurrent_gemma|nemotron)\..*norm.*\.weight$", 0.0, 0.1),  # one is added to these
    (r"([qk]_norm|(query|key)_layernorm)\.weight$", 2.0, 0.2),  # sharp attention
    (r"head_g$", 4.0, 0.2),
    (r"^rwkv7.*\.(g_norm\.weight|k_k|k_a)$", 1.0, 0.1),
    (r"^rwkv7.*\.x_[rwkvag]$", 0.5, 0.2),
]


def _draw(path: str, old: mx.array, key: mx.array) -> mx.array:
    """A random value for one parameter: fan-in scaled matrices, and vectors around their initial value."""
    noise = mx.random.normal(old.shape, key=key)
    for pattern, centre, spread in DRAWS:
        if re.search(pattern, path):
            return centre + spread * noise
    if old.ndim < 2:
        return old + 0.1 * noise
    if old.shape[0] == VOCAB:
        return noise * 1.5 * old.shape[1] ** -0.5
    fan_in = old.shape[1] if "conv" in path else old.shape[-1]
    gain = 1.8 if re.search(r"att(n|ention)|Wqkv", path) else 1.0
    return noise * gain * fan_in**-0.5


def names() -> list[str]:
    """Every model type in the zoo."""
    return list(ZOO)


def config(model_type: str) -> Config:
    """The configuration that `tiny` builds."""
    return copy.deepcopy(cfg(BASE, ZOO[model_type], model_type=model_type))


def tiny(model_type: str, seed: int = 0) -> nn.Module:
    """Build a model with float32 weights that depend on nothing but the seed."""
    high, low = mx.random.state[0].tolist()
    mx.random.seed(seed)
    model_class, args_class = _get_classes(config(model_type))
    model: nn.Module = model_class(args_class.from_dict(config(model_type)))
    keys = mx.random.split(mx.random.key(seed), 1000)
    flat = tree_flatten(model.parameters())
    drawn = [
        (path, _draw(f"{model_type}.{path}", old, key).astype(mx.float32))
        for (path, old), key in zip(flat, keys, strict=False)
    ]
    model.update(tree_unflatten(drawn))
    if model_type == "phi3small":  # it masks ids of its own tokenizer, beyond this vocabulary
        model._dummy_tokenizer_ids = mx.array([], mx.int32)
    model.eval()
    mx.eval(model.parameters())
    mx.random.seed(high << 32 | low)  # as it was
    return model
