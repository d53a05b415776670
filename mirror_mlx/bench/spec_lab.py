"""What the methods are made of: a pair's models, found, loaded and put into the lab."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.nn as nn

from mirror_mlx import hub, loading
from mirror_mlx.bench.inflate import inflate, widened
from mirror_mlx.bench.lab import Cores
from mirror_mlx.draft import AutoregressiveDraft, streaming
from mirror_mlx.errors import DraftError, ModelError
from mirror_mlx.target import TapAdapter

DECODING = ("num_draft_tokens", "kappa", "max_roots", "exit_layer")


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the models are. whole: the pair's folder, or the target's own; None: there is no such draft."""

    whole: Path
    target: Path
    ar: Path | None
    stream: Path | None

    @classmethod
    def of(cls, model: str, ar: str | None = None, stream: str | None = None) -> "Folders":
        """ar, stream: names of drafts. None: the first streaming draft in the pair's folder, and its main stream as the
        autoregressive draft, so that all methods have the same; without one, the first autoregressive draft there.

        Raises ModelError and DraftError for what is not there, or is a draft of the other kind.
        """
        whole = hub.find(loading.DEMO if model == "demo" else model, ModelError)
        pair = (whole / "target").is_dir() and not (whole / "config.json").exists()
        own: dict[bool, Path] = {}
        for file in sorted(whole.glob("*/config.json")) if pair else ():
            if file.parent.name != "target":
                own.setdefault(streaming.is_streaming(file.parent), file.parent)
        found = [own.get(True) or own.get(False), own.get(True)]
        for i, (name, flag) in enumerate(((ar, "--draft-model"), (stream, "--streaming-draft"))):
            if name is not None:
                found[i] = folder = hub.find(name, DraftError)
                if i and not streaming.is_streaming(folder):
                    raise DraftError(f"{flag} {name}: that is no streaming draft")
        return cls(whole, whole / "target" if pair else whole, *found)


@dataclass(frozen=True, slots=True)
class Lab:
    """The models, and what every method has in common.

    adapter    the trained tap; None: the plain lens
    options    of every engine, but what a method says
    ar         the autoregressive draft's model; stream: the streaming draft's folder; None: there is none
    pass_ms    how long each pass of a model draft takes; 0: as long as it does
    datastore  the file for retrieval
    """

    model: nn.Module
    tokenizer: Any
    adapter: TapAdapter | None
    cores: Cores
    options: Mapping[str, Any]
    ar: nn.Module | None = None
    stream: Path | None = None
    pass_ms: float = 0.0
    datastore: str | None = None


def lab_of(
    folders: Folders, options: Mapping[str, Any], cores: Cores, *, params: int = 0, pass_ms: float = 0.0,
    datastore: str | None = None,
) -> Lab:  # fmt: skip
    """Load everything. options: those of `DECODING` that are not the pair's own. params: inflate the target to so many
    parameters; 0: as it is. Raises MirrorError for what cannot be loaded or used together."""
    with loading.load(folders.whole, mode="ar", **options) as engine:
        model, tokenizer = engine.target.model, engine.tokenizer
        options = {name: getattr(engine.options, name) for name in DECODING}
    if tokenizer is None:
        raise ModelError(f"{folders.whole.name} has no tokenizer: it is needed for the questions")
    ar = _model_of(folders.ar, model, tokenizer) if folders.ar else None
    if params:
        inflate(model, params)
    adapter = widened(loading.load_tap(folders.whole) or loading.load_tap(folders.target), model)
    return Lab(model, tokenizer, adapter, cores, options, ar, folders.stream, pass_ms, datastore)


def _model_of(folder: Path, target: nn.Module, tokenizer: Any) -> nn.Module:
    """An autoregressive draft's model, or a streaming draft's main stream, checked against the target's tokenizer and
    context."""
    draft = loading.load_draft(folder, target, tokenizer, main_stream=True)
    draft.close()
    if not isinstance(draft, AutoregressiveDraft):
        raise DraftError(f"{folder.name} is no mlx-lm model: name another with --draft-model")
    return draft.model
