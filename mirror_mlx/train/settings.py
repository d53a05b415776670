"""What one training run is: every choice, as plain data that can be stored, compared and shown as a command."""

import hashlib
import json
import shlex
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from mirror_mlx.errors import DataError, UsageError

ARCHITECTURE: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 768,
    "max_position_embeddings": 2048,
    "model_type": "qwen3",
    "num_attention_heads": 8,
    "num_hidden_layers": 8,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
"""The bundled demo target: Qwen3 with 7.3 M parameters at 4,096 entries of vocabulary."""

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


@dataclass(frozen=True)
class Settings:
    """All that decides the outcome of a run. Lengths are in tokens, `minutes` in minutes of training.

    Exactly one of `iters` and `minutes` bounds the run: `iters` makes it repeatable, `minutes` makes it end in time.
    `shape` holds what differs from `ARCHITECTURE` (or from `config`), by the names of config.json.
    """

    data: tuple[str, ...]
    out: str
    init: str | None = None
    teacher: str | None = None
    tokenizer: str | None = None
    config: str | None = None
    shape: dict[str, int] = field(default_factory=dict)
    vocab_size: int = 4096
    batch_size: int = 2
    max_seq_length: int = 1024
    learning_rate: float = 1.5e-3
    warmup: int = 100
    iters: int | None = None
    minutes: float | None = None
    grad_clip: float = 1.0
    weight_decay: float = 0.1
    prompt_weight: float = 0.3
    distill_weight: float = 0.7
    held_out: float = 0.05
    seed: int = 0
    steps_per_report: int = 10
    eval_every: int = 200
    val_batches: int = 25
    save_every: int = 200
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        if self.iters is None and self.minutes is None:
            object.__setattr__(self, "iters", 1000)

    def check(self) -> None:
        """Raise UsageError, naming the flag, where a value is out of range or contradicts another."""
        if self.iters is not None and self.minutes is not None:
            raise UsageError("--iters and --minutes both say when to stop: give one of them")
        positive = ("vocab_size", "batch_size", "learning_rate", "iters", "minutes", "grad_clip", "steps_per_report",
                    "eval_every", "val_batches", "save_every")  # fmt: skip
        for name in positive:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{_flag(name)} must be greater than 0, not {value}")
        for name in ("warmup", "weight_decay"):
            if getattr(self, name) < 0:
                raise UsageError(f"{_flag(name)} must not be negative, not {getattr(self, name)}")
        for name in ("prompt_weight", "distill_weight"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{_flag(name)} must be from 0 to 1, not {getattr(self, name)}")
        if not 0 <= self.held_out < 1:
            raise UsageError(f"--held-out is a fraction, at least 0 and below 1, not {self.held_out}")
        if self.max_seq_length < 2:
            raise UsageError(f"--max-seq-length must be at least 2, not {self.max_seq_length}")
        if self.init and (self.config or self.shape):
            raise UsageError("--init brings its own architecture: leave out --config and the flags of the shape")
        for name, value in self.shape.items():
            if value < 1:
                raise UsageError(f"{_flag(name)} must be greater than 0, not {value}")

    def command(self) -> str:
        """The command line of this run, with bare file names, so that it can be published with the model."""
        words = ["mirror-mlx", "train", "lm"]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "shape":
                for key, number in value.items():
                    words += [_flag(key), str(number)]
            elif item.name in ("data", "out", "init", "teacher", "tokenizer", "config"):
                paths = value if isinstance(value, tuple) else [value] if value else []
                words += [_flag(item.name), *(Path(path).name for path in paths)] if paths else []
            elif value is not None and (value != item.default or item.name == "iters"):
                words += [_flag(item.name), str(value)]
        return shlex.join(words)

    def to_json(self) -> dict[str, Any]:
        """Plain data for a checkpoint, with a fingerprint of the contents of the data files."""
        plain = asdict(self) | {"data": list(self.data)}
        return plain | {"fingerprint": fingerprint(self.data)}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> "Settings":
        """The settings a checkpoint was made with."""
        known = {item.name for item in fields(cls)}
        return cls(**{key: value for key, value in plain.items() if key in known} | {"data": tuple(plain["data"])})


def merge(stored: Settings, given: dict[str, Any]) -> Settings:
    """The settings to resume with: the stored ones, which whatever was given again has to repeat.

    Only the names of the files and of the out folder may differ; the contents are compared when the run resumes.

    Raises:
        UsageError: a given value differs, since the run would no longer be the one that was begun.
    """
    paths = {name: given[name] for name in ("data", "out") if name in given}
    shape = given.get("shape", {})
    for name, value in [*given.items(), *shape.items()]:
        before = stored.shape.get(name) if name in shape else getattr(stored, name)
        if name not in (*paths, "shape") and value != before:
            raise UsageError(
                f"cannot resume with other settings: {_flag(name)} was {_shown(before)}, now {_shown(value)}; "
                "leave it out, or train into another --out"
            )
    return replace(stored, **paths)


def fingerprint(paths: tuple[str, ...]) -> str:
    """SHA-256 over the contents of the files, in order. Raises DataError where one cannot be read."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(Path(path).read_bytes())
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from None
    return digest.hexdigest()


def read_json(path: Path, what: str) -> dict[str, Any]:
    """A JSON object from `path`; UsageError saying `what` was expected where it is missing or malformed."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path} not found: expected {what}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path} as {what}: {error}") from None
    if not isinstance(plain, dict):
        raise UsageError(f"{path} is not {what}: expected a JSON object")
    return plain


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
