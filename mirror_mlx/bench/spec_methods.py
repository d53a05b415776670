"""The methods by name, and how each is made for a pair in the lab."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import mlx.nn as nn

from mirror_mlx import loading
from mirror_mlx.auto import CHOSEN
from mirror_mlx.bench.lab import Pace, PacedDraft
from mirror_mlx.bench.peers import MlxSpeculation, Plain, refusal, view
from mirror_mlx.bench.spec_lab import Lab
from mirror_mlx.bench.spec_parts import Parts, where
from mirror_mlx.bench.spec_run import BASE, Account, Method
from mirror_mlx.draft import AutoregressiveDraft, Draft
from mirror_mlx.engine import Engine
from mirror_mlx.errors import UsageError
from mirror_mlx.lookup import Proposer, TokenRecycling, by_name, fingerprint
from mirror_mlx.messages import HITS
from mirror_mlx.sampling import Sampling
from mirror_mlx.target.submission import for_device

LONGEST = 12  # tokens of a window where lengths adapt


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a method is made.

    what     in the report
    draft    "ar" or "stream": which of the pair's drafts; a name of `mirror_mlx.lookup`; None: none
    options  of the engine; none at all: the method is mlx-lm's
    length   proposals in a window of mlx-lm's speculation
    """

    what: str
    draft: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    length: int = 0


def _mlx_lm(length: int) -> Recipe:
    return Recipe(f"mlx-lm's speculative_generate_step, {length} proposals", "ar", length=length)


_SERIAL = {"mode": "sd"}
_ADAPTIVE = {"mode": "sd", "adaptive": True}
_SAGUARO = {"mode": "mirror", "predictor": "draft"}
_MIRROR = {"mode": "mirror", "predictor": "tap"}
_HYBRID = {"mode": "mirror", "predictor": "hybrid"}
_AUTO = {"mode": "auto"}
TABLE = {
    BASE: Recipe("mlx-lm's generate_step"),
    "mlx-sd@2": _mlx_lm(2),
    "mlx-sd@4": _mlx_lm(4),
    "mlx-sd@7": _mlx_lm(7),
    "ar": Recipe("plain decoding by this runtime", options={"mode": "ar"}),
    "sd-ar": Recipe("autoregressive draft and target in turns", "ar", _SERIAL),
    "sd-stream": Recipe("streaming draft and target in turns", "stream", _SERIAL),
    "sd-ar-adaptive": Recipe("sd-ar with windows whose length adapts, as in SpS", "ar", _ADAPTIVE),
    "sd-stream-adaptive": Recipe("sd-stream with windows whose length adapts, as in SpS", "stream", _ADAPTIVE),
    "pld": Recipe("prompt lookup, chain", "lookup", _SERIAL),
    "lookahead": Recipe("lookahead's n-gram pool, chain", "lookahead", _SERIAL),
    "recycle": Recipe("token recycling, chain", "recycle", _SERIAL),
    "rest": Recipe("retrieval from a datastore, chain", "retrieve", _SERIAL),
    "saguaro-ar": Recipe("autoregressive draft beside the target, for outcomes it foresees itself", "ar", _SAGUARO),
    "saguaro-stream": Recipe("streaming draft beside the target, for outcomes it foresees itself", "stream", _SAGUARO),
    "mirror-ar": Recipe("autoregressive draft beside the target, for the tap's outcomes", "ar", _MIRROR),
    "mirror-stream": Recipe("streaming draft beside the target, for the tap's outcomes", "stream", _MIRROR),
    "hybrid-ar": Recipe("autoregressive draft beside the target, for outcomes of both", "ar", _HYBRID),
    "hybrid-stream": Recipe("streaming draft beside the target, for outcomes of both", "stream", _HYBRID),
    "hybrid-stream-exact": Recipe(
        "hybrid-stream whose streams are checked by the main stream", "stream", {**_HYBRID, "stream_mode": "exact"}
    ),
    "hybrid-stream+lookup": Recipe(
        "hybrid-stream with prompt lookup on a miss", "stream", {**_HYBRID, "fallback": "lookup"}
    ),
    "auto": Recipe("what the runtime chooses by itself, with the streaming draft", "stream", _AUTO),
}
"""Every method, in the order in which they are reported. mlx-lm's speculation is there in any length: mlx-sd@N."""
_ANY_LENGTH = re.compile(r"mlx-sd@([1-9]\d{0,2})")


def recipe(name: str) -> Recipe:
    """Raises UsageError for a name that is none."""
    if name in TABLE:
        return TABLE[name]
    if match := _ANY_LENGTH.fullmatch(name):
        return _mlx_lm(int(match[1]))
    near = get_close_matches(name, TABLE, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"methods has {name!r}: {hint}choose from {', '.join(TABLE)}, mlx-sd@N")


def chosen(names: Sequence[str] | None) -> list[str]:
    """These methods in the table's order, and the baseline. None: all. Raises UsageError for a name that is none."""
    if names is None:
        return list(TABLE)
    places = {name: place for place, name in enumerate(TABLE)}
    first = places["mlx-sd@2"]
    return sorted({BASE, *names}, key=lambda name: (
        first if (length := recipe(name).length) else places[name], length
    ))  # fmt: skip


def make(names: Sequence[str], lab: Lab) -> tuple[list[Method], dict[str, str]]:
    """The methods that can be made, and why the others cannot. Raises MirrorError for what is there and no good."""
    methods: list[Method] = []
    left_out: dict[str, str] = {}
    try:
        for name in names:
            reason = _missing(recipe(name), lab)
            if reason is None:
                methods.append(_made(name, recipe(name), lab))
            else:
                left_out[name] = reason
    except BaseException:
        close(methods)
        raise
    return methods, left_out


def close(methods: Sequence[Method]) -> None:
    for method in methods:
        method.close()


def _missing(made: Recipe, lab: Lab) -> str | None:
    if made.draft == "ar" and lab.ar is None:
        return "there is no autoregressive draft: name one with --draft-model"
    if made.draft == "stream" and lab.stream is None:
        return "there is no streaming draft: name one with --streaming-draft"
    if made.draft == "retrieve" and lab.datastore is None:
        return "there is no datastore: make one with 'mirror-mlx datastore' and name it with --datastore"
    return refusal(lab.model) if made.length else None


def _made(name: str, made: Recipe, lab: Lab) -> Method:
    model = view(lab.model)
    if name == BASE:
        return Plain(model, lab.tokenizer)
    if made.length:
        return MlxSpeculation(name, model, view(lab.ar), lab.tokenizer, made.length, lab.pass_ms / 1e3)  # type: ignore[arg-type]
    options = {**lab.options, **made.options, "draft_timeout": 30.0}
    if options["mode"] == "auto":  # which chooses
        options = {name: value for name, value in options.items() if name not in CHOSEN}
    if options.get("adaptive"):
        options["num_draft_tokens"] = max(LONGEST, options.get("num_draft_tokens", 0))
    parts = Parts(for_device())
    draft = _draft(made.draft, model, lab)
    engine = Engine(
        model, lab.tokenizer, draft, draft_work=lab.cores.for_draft, submission=parts, tap=lab.adapter, **options
    )
    return Ours(name, engine, parts)


def _draft(kind: str | None, model: nn.Module, lab: Lab) -> Draft | Proposer | None:
    if kind is None:
        return None
    draft: Draft
    if kind == "ar":
        draft = AutoregressiveDraft(view(lab.ar))  # type: ignore[arg-type]
    elif kind == "stream":
        draft = loading.load_draft(lab.stream, model, lab.tokenizer)  # type: ignore[arg-type]
    else:
        made_with = fingerprint(lab.tokenizer.get_vocab()) if kind == "retrieve" else None
        return by_name(kind, datastore=lab.datastore, tokenizer=made_with)
    return PacedDraft(draft, Pace(lab.pass_ms / 1e3))


class Ours:
    """A method of this runtime: an engine of its own."""

    own_noise = False

    def __init__(self, name: str, engine: Engine, parts: Parts) -> None:
        self.name = name
        self._engine, self._parts = engine, parts

    def fresh(self) -> None:
        """Of all proposers, only recycling keeps what it learnt in one request for the next."""
        if isinstance(self._engine.draft, TokenRecycling):
            self._engine.draft.successors.clear()

    def empty(self, prompt: Sequence[int]) -> None:
        """One token that this prompt does not begin with: target and draft then share nothing with it."""
        for _ in self._engine.stream([int(prompt[0] == 0)], 1):
            pass

    def stream(self, prompt: Sequence[int], limit: int, sampling: Sampling) -> Iterator[int]:
        self._parts.clear()
        responses: Any = self._engine.stream(prompt, limit, sampling)
        with closing(responses):
            for response in responses:
                yield response.token

    def account(self) -> Account:
        trace, stats, mode = self._engine.trace, self._engine.stats, self._engine.options.mode
        mirrored = [step for step in trace.steps if step.mode == "mirror" and step.next != "none"]
        predicted = mirrored if mode in ("mirror", "auto") else None
        return Account(
            steps=[step.outcome.accepted + 1 for step in trace.steps],
            hits=None if predicted is None else sum(step.next in HITS for step in predicted),
            predicted=None if predicted is None else len(predicted),
            mode=stats.mode,
            reason=stats.reason,
            where=where(trace, self._parts),
        )

    def close(self) -> None:
        self._engine.close()
