"""The engine: prompts in, responses out. The loop itself is in `mirror_mlx.decoding`."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import GenerationResponse, wired_limit

from mirror_mlx.auto import Auto, fixed
from mirror_mlx.calibration import Found, Report
from mirror_mlx.decoding import Decoding
from mirror_mlx.draft.protocol import Draft, streaming
from mirror_mlx.errors import DraftError, PromptError, UsageError
from mirror_mlx.lookup import NAMES, PromptLookup, Proposer, by_name, fingerprint
from mirror_mlx.options import Options
from mirror_mlx.pooling import Pooling
from mirror_mlx.prompts import Prompt, TextStream, encode, wrapped
from mirror_mlx.rendezvous import Rendezvous
from mirror_mlx.sampling import Sampling
from mirror_mlx.target import TapAdapter, Target
from mirror_mlx.target.kv import KVOptions
from mirror_mlx.target.submission import Submission
from mirror_mlx.target.target import Progress
from mirror_mlx.threads import brisk
from mirror_mlx.trace import Stats, Trace, summarise
from mirror_mlx.tuning.choice import Reach
from mirror_mlx.tuning.due import Timetable
from mirror_mlx.tuning.fanout import Fan
from mirror_mlx.tuning.policy import Policy
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.worth import Worth
from mirror_mlx.worker import Work


@dataclass
class Response(GenerationResponse):
    """One token; mlx-lm's `GenerationResponse` and where the token came from.

    origin  "draft" for a proposal the target agreed with, "target" for the target's own
    """

    origin: str = "target"


class Engine:
    """Decodes with one target and, if there is one, a draft. Output is the target's own for any draft.

    model      a loaded mlx-lm model
    tokenizer  its tokenizer (mlx-lm's wrapper or transformers'); None: token ids in and out, no text
    draft      anything with the `mirror_mlx.draft.Draft` protocol; the engine closes it. Or a proposer, which needs
               no model: `mirror_mlx.lookup.Proposer`
    tap        a trained tap adapter; None: the plain logit lens
    options    see `mirror_mlx.options.Options`; UsageError for one that is unknown or out of range

    worth      what is known of the hybrid's predictors; set to None, all outcomes are named by both
    times      what is known of when outcomes are due; set to None, the draft begins every pass that it can

    >>> with Engine(model, tokenizer, draft) as engine:               # doctest: +SKIP
    ...     for response in engine.stream("Tom has 3 apples.", max_tokens=64):
    ...         print(response.text, end="")
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any = None,
        draft: Draft | Proposer | None = None,
        *,
        mode: str = "mirror",
        predictor: str = "hybrid",
        draft_work: Work = nullcontext,
        submission: Submission | None = None,
        tap: TapAdapter | None = None,
        **options: Any,
    ) -> None:
        self.options = o = Options.of({"mode": mode, "predictor": predictor, **options})
        self.tokenizer = wrapped(tokenizer)
        self.stats = Stats()
        self.trace = Trace()
        self.draft = draft
        self._proposer = draft if isinstance(draft, Proposer) else _fallback(o, self.tokenizer)
        if isinstance(draft, Proposer):
            draft = None
        if draft is not None and not isinstance(draft, Draft):
            raise DraftError(
                f"a {type(draft).__name__} is no draft: wrap an mlx-lm model in mirror_mlx.draft.AutoregressiveDraft"
            )
        if draft is not None and (streams := streaming(draft)) is not None:
            streams.use(o.streams, exact=o.stream_mode == "exact", length=o.length)
        elif draft is not None and (o.streams or o.stream_mode == "exact"):
            raise UsageError("this draft has no lookahead streams: leave out streams and stream_mode")
        kv = KVOptions(o.max_kv_size, o.kv_bits, o.kv_group_size, o.quantized_kv_start, o.prefill_step_size)
        self.target = Target(model, exit_layer=o.exit_layer, kappa=o.kappa, kv=kv, submission=submission, tap=tap)
        if o.kappa > self.target.vocab_size:
            self.target.close()
            raise UsageError(f"kappa is {o.kappa}: the target has only {self.target.vocab_size} tokens")
        self._eos = set(self.tokenizer.eos_token_ids) if self.tokenizer else set()
        self._rendezvous, self._inner = None, draft
        self._max_roots = o.max_roots
        if draft is not None:
            self._rendezvous = Rendezvous(draft, timeout=o.draft_timeout, work=draft_work)
            self._max_roots = min(o.max_roots, draft.max_roots or o.max_roots)
        self._running = False
        self._fan = Fan(o.fan_out)
        self._pooling: defaultdict[int, Pooling] = defaultdict(Pooling)
        self.worth: Worth | None = Worth()
        self.times: Timetable | None = Timetable()
        self._auto = None
        if o.mode == "auto" and (draft is not None or self.proposes) and self.target.window_refusal is None:
            if draft is not None and o.fallback == "jit":
                self._proposer = PromptLookup()  # a backup that costs nothing, where the target had better not wait
            self._auto = Auto(
                self.target, self._rendezvous, draft, o, self._max_roots, tokenizer=self.tokenizer, backup=self.proposes
            )

    @property
    def proposes(self) -> bool:
        """Whether windows may come from a proposer, as the draft or as its fallback."""
        return self._proposer is not None

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the draft's thread and give the model back as it was. Idempotent."""
        if self._auto is not None:
            self._auto.close()
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

    def calibrate(self, report: Report = lambda share: None, sampling: Sampling = Sampling()) -> None:
        """Measure what target and draft take, for mode "auto", unless that is known: some seconds. The first request
        does it where nobody has. `report` is told which share is done; sampling: as requests are going to have it."""
        if self._auto is not None:
            self._auto.calibrate(report, sampling)
            if self.times is not None:
                self.times.expect(self._auto.found[0].costs)

    @property
    def calibration(self) -> tuple[Found, Reach]:
        """What was measured, and what is chosen from. Raises UsageError where nothing is, as nobody has to choose."""
        if self._auto is None:
            raise UsageError("there is nothing to choose from: mode='auto' and a draft are needed")
        return self._auto.found

    @property
    def setting(self) -> Setting:
        """What the next request begins with. Calibrates in mode auto."""
        return self._policy()[0].ask().setting

    def _policy(self) -> tuple[Policy, str]:
        """Who decides in the next request; and why, if not as asked for."""
        if self._auto is not None:
            return self._auto.policy, self._auto.refusal
        return fixed(
            self.target, self.options, self._max_roots, draft=self._inner, proposes=self.proposes, worth=self.worth
        )  # fmt: skip

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
        self.calibrate(sampling=sampling)
        policy, reason = self._policy()
        if self.options.accept == "reject":
            sampling = _by_rejection(sampling, self.options, self._max_roots)
        run = Decoding(
            self.target, self._rendezvous, self.options, policy, fan=self._fan, pooling=self._pooling,
            times=self.times, proposer=self._proposer, tokens=tokens, limit=limit, stops=self._eos, sampling=sampling,
            trace=trace,
        )  # fmt: skip
        text, steps = TextStream(self.tokenizer), run.steps()
        prompt_tokens, started, first, count = len(tokens), time.perf_counter(), 0.0, 0
        try:
            with wired_limit(self.target.model), brisk():
                run.prefill(progress)
                for emitted in steps:
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
            steps.close()
            self._running = False
            if self._rendezvous is not None:
                self._rendezvous.cancel()
            elapsed = time.perf_counter() - (first or started)
            policy.answered(count)
            account = policy.account()
            speed = (count - 1) / elapsed if count > 1 else 0.0
            self.stats = replace(
                summarise(trace, tokens=count, reason=run.reason or reason),
                setting=account.setting,
                tried=account.tried,
                gain=None if account.plain is None else speed * account.plain / 1e3,
                draft_host=getattr(self._inner, "host", ""),
                prompt_tokens=prompt_tokens,
                prompt_tps=prompt_tokens / max((first or started) - started, 1e-9) if first else 0.0,
                generation_tps=speed,
            )
            if self.options.trace is not None:
                trace.write(self.options.trace)


def _by_rejection(sampling: Sampling, options: Options, max_roots: int) -> Sampling:
    """As target and draft need it where proposals are accepted by rejection sampling. What a draft avoids are as many
    tokens as are prepared for at each row."""
    if options.downweight == 1:
        return replace(sampling, coupled=False)
    roots = max_roots // 2 if options.predictor == "hybrid" else max_roots
    return replace(sampling, coupled=False, downweight=(max(1, roots // (options.length + 1)), options.downweight))


def _fallback(options: Options, tokenizer: Any) -> Proposer | None:
    """What proposes a window on a miss without a model, where that is asked for. Raises UsageError, DraftError."""
    if options.fallback not in NAMES:
        return None
    made_with = fingerprint(tokenizer.get_vocab()) if tokenizer is not None and options.datastore else None
    return by_name(options.fallback, datastore=options.datastore, tokenizer=made_with)
