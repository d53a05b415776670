"""What one training run is: every choice, as plain data that can be stored, compared and shown as a command."""

import hashlib
import json
import shlex
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from mirror_mlx.errors import DataError, UsageError

OPTIMIZERS = ("adamw", "muon")


@dataclass(frozen=True)
class Settings:
    """What decides the outcome of a run of any kind. Lengths are in tokens, `minutes` in minutes of training.

    Exactly one of `iters` and `minutes` bounds the run: `iters` makes it repeatable, `minutes` makes it end in time.
    A step takes `accumulate` batches of `batch_size` rows of `max_seq_length` tokens.
    """

    data: tuple[str, ...]
    out: str
    batch_size: int = 2
    accumulate: int = 1
    max_seq_length: int = 1024
    learning_rate: float = 1.5e-3
    warmup: int = 100
    iters: int | None = None
    minutes: float | None = None
    optimizer: str = "adamw"
    grad_clip: float = 1.0
    weight_decay: float = 0.1
    prompt_weight: float = 0.3
    held_out: float = 0.05
    seed: int = 0
    steps_per_report: int = 10
    eval_every: int = 200
    val_batches: int = 25
    save_every: int = 200
    dtype: str = "bfloat16"

    KIND: ClassVar[str] = ""
    FILES: ClassVar[tuple[str, ...]] = ("data", "out")
    """Settings that are paths: of a run that is published only their names are told, and they may move."""

    def __post_init__(self) -> None:
        if self.iters is None and self.minutes is None:
            object.__setattr__(self, "iters", 1000)

    def check(self) -> None:
        """Raise UsageError, naming the flag, where a value is out of range or contradicts another."""
        if self.iters is not None and self.minutes is not None:
            raise UsageError("--iters and --minutes both say when to stop: give one of them")
        self._positive("batch_size", "accumulate", "learning_rate", "iters", "minutes", "grad_clip",
                       "steps_per_report", "eval_every", "val_batches", "save_every")  # fmt: skip
        for name in ("warmup", "weight_decay"):
            if getattr(self, name) < 0:
                raise UsageError(f"{flag(name)} must not be negative, not {getattr(self, name)}")
        self._share("prompt_weight")
        if self.optimizer not in OPTIMIZERS:
            raise UsageError(f"--optimizer is {self.optimizer!r}: choose from {', '.join(OPTIMIZERS)}")
        if not 0 <= self.held_out < 1:
            raise UsageError(f"--held-out is a fraction, at least 0 and below 1, not {self.held_out}")
        if self.max_seq_length < 2:
            raise UsageError(f"--max-seq-length must be at least 2, not {self.max_seq_length}")

    def _positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{flag(name)} must be greater than 0, not {value}")

    def _share(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{flag(name)} must be from 0 to 1, not {getattr(self, name)}")

    def command(self) -> str:
        """The command line of this run, with bare file names, so that it can be published with the model."""
        words = ["mirror-mlx", "train", self.KIND]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "shape":
                for key, number in value.items():
                    words += [flag(key), str(number)]
            elif item.name in self.FILES:
                paths = value if isinstance(value, tuple) else [value] if value else []
                words += [flag(item.name), *(Path(path).name for path in paths)] if paths else []
            elif isinstance(value, tuple):
                words += [flag(item.name), *map(str, value)] if value != item.default else []
            elif isinstance(value, bool):
                words += [flag(item.name)] if value else []
            elif value is not None and (value != item.default or item.name == "iters"):
                words += [flag(item.name), str(value)]
        return shlex.join(words)

    def to_json(self) -> dict[str, Any]:
        """Plain data for a checkpoint, with a fingerprint of the contents of the data files."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return plain | {"kind": self.KIND, "fingerprint": fingerprint(self.data)}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        """The settings a checkpoint was made with. Raises UsageError for one of another kind of run."""
        if plain.get("kind") != cls.KIND:
            raise UsageError(f"the run to resume is one of 'train {plain.get('kind')}', not of 'train {cls.KIND}'")
        known = {item.name for item in fields(cls)}
        listed = {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
        return cls(**{name: value for name, value in listed.items() if name in known})


AnySettings = TypeVar("AnySettings", bound=Settings)


def merge(stored: AnySettings, given: dict[str, Any]) -> AnySettings:
    """The settings to resume with: the stored ones, which whatever was given again has to repeat.

    Only the names of files and folders may differ; the contents of the data are compared when the run resumes.

    Raises:
        UsageError: a given value differs, since the run would no longer be the one that was begun.
    """
    paths = {name: given[name] for name in stored.FILES if name in given}
    shape, before_shape = given.get("shape", {}), getattr(stored, "shape", {})
    for name, value in [*given.items(), *shape.items()]:
        before = before_shape.get(name) if name in shape else getattr(stored, name)
        if name not in (*paths, "shape") and value != before:
            raise UsageError(
                f"cannot resume with other settings: {flag(name)} was {_shown(before)}, now {_shown(value)}; "
                "leave it out, or train into another --out"
            )
    return replace(stored, **paths)


def fingerprint(paths: tuple[str, ...]) -> str:
    """SHA-256 over the contents of the files, in order. Raises DataError where one cannot be read."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(Path(path).read_bytes())
        except FileNotFoundError:
            raise DataError(f"{path} not found: expected chats (.jsonl) or text") from None
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


def flag(name: str) -> str:
    """
    >>> flag("batch_size")
    '--batch-size'
    """
    return "--" + name.replace("_", "-")


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
