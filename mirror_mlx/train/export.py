"""The model folder that training ends in: what `mlx_lm.load` and the Hugging Face hub expect to find."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import save_config

from mirror_mlx.errors import UsageError
from mirror_mlx.train import tokenizer as tokenizers

README = """---
library_name: mlx
pipeline_tag: text-generation
---

{about}

```
{command}
```
"""


def export(
    files: dict[str, dict[str, mx.array]], config: dict[str, Any], folder: Path, *, dtype: str, about: str, command: str
) -> None:
    """Write a model to `folder`, next to the tokenizer that is already there.

    `files` are the weights of each file. `config` is sorted into config.json, floating weights are cast to `dtype`
    ("float16", "bfloat16", "float32"), generation_config.json names the tokens that end a reply, and README.md says
    `about` and the `command`. Every file is replaced at once, so that a reader, or a crash, never sees half of one.

    Raises UsageError where a weight is too large for float16.
    """
    tokenizer = tokenizers.load(folder)
    ends = end_tokens(tokenizer)
    config = {**config, "eos_token_id": ends[0], "torch_dtype": dtype}
    generation = {"eos_token_id": ends}
    if tokenizer.pad_token_id is not None:
        config["pad_token_id"] = generation["pad_token_id"] = tokenizer.pad_token_id
    hidden = folder / ".partial"
    hidden.mkdir(exist_ok=True)
    for file, weights in files.items():
        cast = {name: _cast(name, value, dtype) for name, value in weights.items()}
        save_weights(hidden / file, cast)
    save_config(config, hidden / "config.json")
    (hidden / "generation_config.json").write_text(json.dumps(generation, indent=4, sort_keys=True), encoding="utf-8")
    write_readme(hidden, about, command)
    for path in sorted(hidden.iterdir()):
        os.replace(path, folder / path.name)
    hidden.rmdir()


def write_readme(folder: Path, about: str, command: str) -> None:
    """README.md: what this is, and the command that made it."""
    (folder / "README.md").write_text(README.format(about=about, command=command), encoding="utf-8")


def weights_of(model: nn.Module) -> dict[str, dict[str, mx.array]]:
    """A whole model in one file."""
    return {"model.safetensors": dict(tree_flatten(model.parameters()))}


def save_weights(path: Path, weights: dict[str, mx.array]) -> None:
    """Write a safetensors file. Raises OSError where it does not come out whole: MLX does not look whether it does."""
    mx.eval(list(weights.values()))
    mx.save_safetensors(str(path), weights, metadata={"format": "mlx"})
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
        os.fsync(file.fileno())
    wanted = 8 + header + sum(value.nbytes for value in weights.values())
    if path.stat().st_size != wanted:
        raise OSError(errno.ENOSPC, f"only {path.stat().st_size} of {wanted} bytes were written", str(path))


def end_tokens(tokenizer: Any) -> list[int]:
    """Ids that end a reply: the tokenizer's own, then the end of a text."""
    ends = [tokenizer.eos_token_id]
    end_of_text = tokenizer.get_vocab().get(tokenizers.END_OF_TEXT)
    return ends if end_of_text in (None, *ends) else [*ends, end_of_text]


def _cast(name: str, value: mx.array, dtype: str) -> mx.array:
    if not mx.issubdtype(value.dtype, mx.floating):
        return value
    cast = value.astype(getattr(mx, dtype))
    if dtype == "float16" and mx.isinf(cast).any().item():
        raise UsageError(f"{name} has weights beyond float16's range: use --dtype bfloat16")
    return cast
