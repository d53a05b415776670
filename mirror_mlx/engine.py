"""The engine: one loop in which the target verifies a window while the draft prepares the next.

Contract of the loop: a token is emitted only after the target chose it; caches are committed before it is emitted, so
an abandoned generator leaves them consistent; the draft is never waited for while the target has work.
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import GenerationResponse, wired_limit

from mirror_mlx.draft.protocol import Draft
from mirror_mlx.errors import DraftError, PromptError, UsageError
from mirror_mlx.messages import Outcome, Window
from mirror_mlx.options import Options
from mirror_mlx.prompts import Prompt, TextStream, encode, wrapped
from mirror_mlx.rendezvous import Rendezvous, Ticket, Work
from mirror_mlx.rounds import Plan
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import Target
from mirror_mlx.target.submission import Submission
from mirror_mlx.target.target import KVOptions, Progress
from mirror_mlx.trace import Stats, StepTrace, Trace, clock, summarise
from mirror_mlx.verify import shorten, verify

_TRIAL = 32  # steps after which mode "auto" looks at what the draft has brought
_WORTH = 0.15  # accepted proposals a step, below which it decodes plainly


@dataclass
class Response(GenerationResponse):
    """One token; mlx-lm's `GenerationResponse` and where the token came from.

    origin  "draft" for a proposal the target agreed with, "target" for the target's own
    """

    origin: str = "target"


@dataclass(slots=True)
class _Emitted:
    token: int
    origin: str
    logprobs: mx.array


class Engine:
    """Decodes with one target and, if there is one, a draft. Output is the target's own for any draft.

    model      a loaded mlx-lm model
    tokenizer  its tokenizer (mlx-lm's wrapper or transformers'); None: token ids in and out, no text
    draft      anything with the `mirror_mlx.draft.Draft` protocol; the engine closes it
    options    see `mirror_mlx.options.Options`; UsageError for one that is unknown or out of range

    >>> with Engine(model, tokenizer, draft) as engine:               # doctest: +SKIP
    ...     for response in engine.stream("Tom has 3 apples.", max_tokens=64):
    ...         print(response.text, end="")
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any = None,
        draft: Draft | None = None,
        *,
        mode: str = "mirror",
        predictor: str = "hybrid",
        draft_work: Work = nullcontext,
        submission: Submission | None = None,
        **options: Any,
    ) -> None:
        self.options = o = Options.of({"mode": mode, "predictor": predictor, **options})
        self.tokenizer = wrapped(tokenizer)
        self.stats = Stats()
        self.trace = Trace()
        if draft is not None and not isinstance(draft, Draft):
            raise DraftError(
                f"a {type(draft).__name__} is no draft: wrap an mlx-lm model in mirror_mlx.draft.AutoregressiveDraft"
            )
        kv = KVOptions(o.max_kv_size, o.kv_bits, o.kv_group_size, o.quantized_kv_start, o.prefill_step_size)
        self.target = Target(model, exit_layer=o.exit_layer, kappa=o.kappa, kv=kv, submission=submission)
        if o.kappa > self.target.vocab_size:
            self.target.close()
            raise UsageError(f"kappa is {o.kappa}: the target has only {self.target.vocab_size} tokens")
        self._eos = set(self.tokenizer.eos_token_ids) if self.tokenizer else set()
        self._rendezvous = None
        self._max_roots = o.max_roots
        if draft is not None:
            self._rendezvous = Rendezvous(draft, timeout=o.draft_timeout, work=draft_work)
            self._max_roots = min(o.max_roots, draft.max_roots or o.max_roots)
        self._running = False

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the draft's thread and give the model back as it was. Idempotent."""
        if self._rendezvous is not None:
            self._rendezvous.close()
        self.target.close()

    def generate(self, prompt: Prompt, **kwargs: Any) -> str:
        """The whole text of one request. Arguments as `stream`."""
        return "".join(response.text for response in self.stream(prompt, **kwargs))

    def stream(
        self,
        prompt: Prompt,
        max_tokens: int = 256,
        sampling: Sampling = Sampling(),
        progress: Progress | None = None,
    ) -> Iterator[Response]:
        """Decode one request token by token.

        prompt      a string as it is, a message list (through the chat template), or token ids
        max_tokens  at most so many; -1: until the model stops or its context is full
        progress    called with (prompt tokens done, all prompt tokens)
        Raises PromptError for an empty or overlong prompt, UsageError where a value is out of range. The last
        response has a `finish_reason`; `stats` and `trace` are this run's as soon as it ends, however it ends.
        """
        tokens = encode(self.tokenizer, prompt)
        self._check_tokens(tokens)
        if max_tokens == 0 or max_tokens < -1:
            raise UsageError(f"max_tokens is {max_tokens}: it must be 1 or more, or -1 for no limit")
        room = (self.target.context_length or 1 << 62) - len(tokens)
        limit = room if max_tokens == -1 else min(max_tokens, room)
        return self._respond(tokens, limit, sampling, progress)

    def _check_tokens(self, tokens: list[int]) -> None:
        longest = self.target.context_length
        if longest is not None and len(tokens) >= longest:
            raise PromptError(
                f"the prompt has {len(tokens)} tokens and the model's context is {longest}: shorten the prompt"
            )
        if not all(0 <= token < self.target.vocab_size for token in tokens):
            raise PromptError(f"the prompt has token ids outside the model's vocabulary of {self.target.vocab_size}")

    def _respond(
        self, tokens: list[int], limit: int, sampling: Sampling, progress: Progress | None
    ) -> Iterator[Response]:
        if self._running:
            raise UsageError("this engine is in the middle of another request: finish or close that one first")
        self._running = True
        self.trace = trace = Trace()
        run = _Run(self, tokens, limit, sampling, trace)
        text = TextStream(self.tokenizer)
        prompt_tokens, started, first, count = len(tokens), time.perf_counter(), 0.0, 0
        try:
            with wired_limit(self.target.model):
                run.prefill(progress)
                for emitted in run.steps():
                    now = time.perf_counter()
                    first, count = first or now, count + 1
                    stop = emitted.token in self._eos
                    ends = stop or count == limit
                    piece = "" if stop else text.add(emitted.token)
                    yield Response(
                        text=piece + (text.end() if ends else ""),
                        token=emitted.token,
                        logprobs=emitted.logprobs,
                        from_draft=emitted.origin == "draft",
                        prompt_tokens=prompt_tokens,
                        prompt_tps=prompt_tokens / max(first - started, 1e-9),
                        generation_tokens=count,
                        generation_tps=count / max(time.perf_counter() - first, 1e-9),
                        peak_memory=mx.get_peak_memory() / 1e9,
                        finish_reason=("stop" if stop else "length") if ends else None,
                        origin=emitted.origin,
                    )
                    if ends:
                        return
        finally:
            self._running = False
            if self._rendezvous is not None:
                self._rendezvous.cancel()
            elapsed = time.perf_counter() - (first or started)
            self.stats = replace(
                summarise(trace, tokens=count, mode=run.mode, reason=run.reason),
                prompt_tokens=prompt_tokens,
                prompt_tps=prompt_tokens / max((first or started) - started, 1e-9) if first else 0.0,
                generation_tps=(count - 1) / elapsed if count > 1 else 0.0,
            )
            if self.options.trace is not None:
                trace.write(self.options.trace)


class _Run:
    """One request: what its steps need to know, and which mode is left of the one asked for."""

    def __init__(self, engine: Engine, tokens: list[int], limit: int, sampling: Sampling, trace: Trace) -> None:
        self.options = o = engine.options
        self.mode = "mirror" if o.mode == "auto" else str(o.mode)
        self.reason = ""
        self._target, self._eos, self._max_roots = engine.target, engine._eos, engine._max_roots
        self._draft = engine._rendezvous
        self._tokens, self._prompt, self._limit = tokens, len(tokens), limit
        self._sampling, self._trace = sampling, trace
        if self.mode != "ar" and self._draft is None:
            self._step_down("there is no draft")
        elif self.mode != "ar" and self._target.window_refusal is not None:
            self._step_down(self._target.window_refusal)
        elif self._wants_tap and self._target.tap_refusal is not None:
            self.reason = f"draft predictor: {self._target.tap_refusal}"

    @property
    def _wants_tap(self) -> bool:
        return self.mode == "mirror" and self.options.predictor != "draft"

    def prefill(self, progress: Progress | None) -> None:
        """Both devices take in the prompt, all but its last token: that one is the first step's pending token."""
        context = self._tokens[:-1]
        if self._draft is not None and self.mode != "ar":
            self._draft.begin(self._sampling, self._trace, context)
        with self._trace.span("target", "prefill", -1):
            self._target.prefill(context, Sampler(self._sampling), progress)

    def steps(self) -> Iterator[_Emitted]:
        """The loop. The first step has an empty window, so that even its outcome is predicted."""
        target, draft, tokens, window, step = self._target, self._draft, self._tokens, Window(), 0
        while len(tokens) < self._prompt + self._limit:
            began = clock()
            ticket = self._start(step, window)
            with self._trace.span("target", "verify", step):
                tap = target.begin(tokens[-1], window.tokens, tokens, tap=self._wants_tap, alone=ticket is None)
                if draft and ticket and tap:
                    draft.roots(ticket, tap)
                chosen = target.finish()
            outcome = verify(window.tokens, chosen)
            outcome = shorten(outcome, window.tokens, self._eos, self._left)
            if draft and ticket:
                draft.resolve(ticket, outcome)
            target.commit(outcome)
            tokens += [*window.tokens[: outcome.accepted], outcome.token]
            note = self._note(step, clock() - began, window, outcome, ticket)
            yield from self._emitted(window, outcome)
            window, step = self._collect(ticket, outcome, note), step + 1

    @property
    def _left(self) -> int:
        return self._prompt + self._limit - len(self._tokens)

    def _start(self, step: int, window: Window) -> Ticket | None:
        if self._draft is None or self.mode == "ar":
            return None
        ticket = self._draft.start(step, self._plan(window), self._tokens)
        if self._draft.fault is not None:
            self._step_down(str(self._draft.fault))
        return ticket

    def _plan(self, window: Window) -> Plan:
        """What the draft may do in this step. At least one token is emitted by it, one by the next."""
        o = self.options
        return Plan(
            window=window.tokens,
            length=max(0, min(o.num_draft_tokens, self._left - 2)),
            vocab_size=self._target.vocab_size,
            predictor=None if self.mode == "sd" else o.predictor,
            fallback=o.fallback if self.mode == "mirror" else "jit",
            kappa=o.kappa,
            max_roots=self._max_roots,
            tap=self._target.tap_refusal is None,
        )

    def _emitted(self, window: Window, outcome: Outcome) -> Iterator[_Emitted]:
        """An accepted proposal is the draft's; so is the token a shortened outcome ends with."""
        for row, token in enumerate([*window.tokens[: outcome.accepted], outcome.token]):
            proposed = row < len(window.tokens) and window.tokens[row] == token
            yield _Emitted(token, "draft" if proposed else "target", self._target.logprobs(row))

    def _note(self, step: int, busy: int, window: Window, outcome: Outcome, ticket: Ticket | None) -> StepTrace:
        note = StepTrace(step, window, outcome, roots=ticket.roots if ticket else 0, busy=busy)
        self._trace.steps.append(note)
        if self.options.mode == "auto" and self.mode != "ar" and step + 1 == _TRIAL:
            gained = sum(s.outcome.accepted for s in self._trace.steps)
            if gained < _WORTH * _TRIAL:
                self._step_down(f"only {gained} of the draft's tokens held in {_TRIAL} steps")
        return note

    def _collect(self, ticket: Ticket | None, outcome: Outcome, note: StepTrace) -> Window:
        """The next window, as long as it may be; empty once there is no draft to ask."""
        if self._draft is None or ticket is None or self.mode == "ar" or outcome.token in self._eos:
            return Window()
        room = self._target.room()
        length = self._left - 1 if room is None else min(self._left - 1, room)
        if length < 1:
            return Window()
        began = clock()
        window = self._draft.collect(ticket)
        note.waited, note.next = clock() - began, window.source
        note.busy += note.waited
        self._trace.add("target", "collect", note.step, began, began + note.waited)
        if self._draft.fault is not None:
            self._step_down(str(self._draft.fault))
        return Window(window.tokens[:length], window.source)

    def _step_down(self, reason: str) -> None:
        self.mode, self.reason = "ar", reason
        self._trace.fault = self._draft.fault if self._draft else None
