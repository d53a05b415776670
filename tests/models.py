"""Tiny model folders on disk, made on the spot: qwen3 with a byte-level tokenizer and a chat template.

>>> import tempfile, mirror_mlx
>>> folder = pair(Path(tempfile.mkdtemp()), says="Yes, 42.")
>>> with mirror_mlx.load(folder) as engine:
...     engine.generate([{"role": "user", "content": "6 times 7?"}])
'Yes, 42.'
"""

import json
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models import qwen3
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from mirror_mlx.prompts import CHATML
from mirror_mlx.target import tap

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END = SPECIAL.index("<|im_end|>")
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
VOCAB = len(SPECIAL) + len(BYTES)

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "eos_token_id": END,
}


def save_tiny(
    folder: Path,
    *,
    says: str | None = None,
    loops: bool = False,
    seed: int = 0,
    tokenizer_seed: int | None = None,
    chat_template: str | None = CHATML,
    **config: Any,
) -> Path:
    """Write a model folder and return it.

    says            the answer to everything, greedily, on any machine: characters that do not repeat; then it stops,
                    or starts again if it `loops`. None: random weights from `seed`
    tokenizer_seed  another order of the tokens, as in another family of models
    config          fields of config.json
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocab = _save_tokenizer(folder, tokenizer_seed, chat_template)
    config = {**CONFIG, **({"hidden_size": VOCAB} if says else {}), **config}
    model = qwen3.Model(qwen3.ModelArgs.from_dict(config))
    weights = dict(tree_flatten(model.parameters()))
    for place, (name, value) in enumerate(weights.items()):
        if "norm" not in name:
            weights[name] = 0.3 * mx.random.normal(value.shape, key=mx.random.key(1000 * seed + place))
    if says:
        weights |= _chain(weights, [vocab[char] for char in _spelled(says)], loops)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder


def pair(folder: Path, *, draft: dict[str, Any] | None = None, **target: Any) -> Path:
    """A folder with `target` and `draft`; the draft is the same model but for what `draft` says of it."""
    save_tiny(folder / "target", **target)
    save_tiny(folder / "draft", **{**target, **(draft or {})})
    return folder


def save_tap(folder: Path, layers: Collection[int], *, hidden: int = CONFIG["hidden_size"], scale: float = 0.3) -> Path:
    """A tap adapter with random weights for these layers, in `folder`; returns its file."""
    pairs = {layer: random_residual(hidden, seed=layer, scale=scale) for layer in layers}
    tap.save(tap.TapAdapter(pairs), folder)
    return folder / tap.FILE


def random_residual(hidden: int, *, rank: int = 3, seed: int = 0, scale: float = 0.3) -> tuple[mx.array, mx.array]:
    """What a tap adapter has for one layer: down [rank, hidden] and up [hidden, rank]."""
    down, up = mx.random.split(mx.random.key(seed))
    return mx.random.normal((rank, hidden), key=down), scale * mx.random.normal((hidden, rank), key=up)


def _spelled(text: str) -> list[str]:
    spelled = [
        char for char, _ in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    ]
    chars = list("".join(spelled))
    assert len(set(chars)) == len(chars), f"{text!r} repeats a character"
    return chars


def _chain(weights: dict[str, mx.array], says: list[int], loops: bool) -> dict[str, mx.array]:
    """Weights with which a token's successor depends on nothing else: one-hot embeddings, layers that add nothing."""
    follows = [says[0]] * VOCAB
    for token, following in zip(says, [*says[1:], says[0] if loops else END], strict=True):
        follows[token] = following
    eye = mx.eye(VOCAB)
    silent = {name: 0 * value for name, value in weights.items() if "o_proj" in name or "down_proj" in name}
    head = mx.zeros((VOCAB, VOCAB)).at[mx.array(follows)].add(eye)
    return {**silent, "model.embed_tokens.weight": eye, "lm_head.weight": head}


def _save_tokenizer(folder: Path, seed: int | None, chat_template: str | None) -> dict[str, int]:
    alphabet = list(BYTES)
    if seed is not None:
        random.Random(seed).shuffle(alphabet)
    vocab = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    if chat_template is not None:
        config["chat_template"] = chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2))
    return vocab
