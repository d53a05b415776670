"""The target: prefill, and for each step `begin`, `finish`, `commit`."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from mirror_mlx.errors import MirrorError, ModelError, UsageError
from mirror_mlx.limits import context_length
from mirror_mlx.messages import Outcome
from mirror_mlx.ranking import Ranking, likeliest, rank
from mirror_mlx.rejection import judge
from mirror_mlx.rollback import Checkpoint, can_cut, can_rewind, cut, prepared, stepwise
from mirror_mlx.sampling import Sampler
from mirror_mlx.target.kv import KVOptions
from mirror_mlx.target.stages import Stages, width
from mirror_mlx.target.submission import Submission, for_device
from mirror_mlx.target.tap import TapAdapter
from mirror_mlx.verify import common

Progress = Callable[[int, int], None]
_Ahead = tuple[mx.array, mx.array, Callable[[], int]]


class Target:
    """One sequence under verification by one model.

    model       a loaded mlx-lm model; it is given back as it was by `close`
    exit_layer  after how many layers the tap reads (1 … layers-1); None: half of them
    kappa       roots of each row: the tap names twice as many and one, since some are the draft's or the window's
    tap         what the tapped hidden state is adapted with; None: the plain logit lens
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        exit_layer: int | None = None,
        kappa: int = 8,
        kv: KVOptions = KVOptions(),
        submission: Submission | None = None,
        tap: TapAdapter | None = None,
    ) -> None:
        self.model = model
        self.kv = kv
        self.kappa = kappa
        self.context_length = None if kv.max_kv_size else context_length(model)
        self.tap_refusal: str | None = None
        self.adapter: TapAdapter | None = None
        self.adapter_refusal: str | None = None
        """Why the tap is the plain lens although there is an adapter."""
        self.window_refusal: str | None = None
        """Why no window can be verified: several rows at once are not what one at a time would be."""
        self._submission = submission or for_device()
        self._stages = Stages(model)
        weakref.finalize(self, self._stages.close)  # the model is given back even if nobody calls `close`
        self._sampler: Sampler | None = None
        self._reset()
        try:
            widths, self.vocab_size = self._probe()
        except Exception as error:
            self._stages.close()
            raise ModelError(f"the model does not run: {type(error).__name__}: {error}") from error
        self.num_layers = len(widths)
        try:
            self.exit_layer = self._check_exit(exit_layer)
            kv.check(model)
            self._adopt(tap, widths)
        except MirrorError:
            self._stages.close()
            raise

    def _adopt(self, tap: TapAdapter | None, widths: Sequence[int | None]) -> None:
        self.adapter_refusal = None if tap is None else tap.refusal(widths)
        self.adapter = tap if self.adapter_refusal is None else None

    def _check_exit(self, exit_layer: int | None) -> int:
        if exit_layer is None:
            return max(1, self.num_layers // 2)
        if not 1 <= exit_layer < self.num_layers:
            raise UsageError(
                f"exit_layer is {exit_layer}: this model has {self.num_layers} layers, so it must be in "
                f"1 … {self.num_layers - 1}"
            )
        return exit_layer

    def _probe(self) -> tuple[list[int | None], int]:
        """The hidden size of each layer's output (None: not one array) and the vocabulary, from two small forwards;
        finds out whether the tap and verification work."""
        inputs = mx.array([[0, 1]])
        with self._stages.recording() as outputs:
            logits = self.model(inputs, cache=make_prompt_cache(self.model, self.kv.max_kv_size))
        alone = self.model(inputs[:, :1], cache=make_prompt_cache(self.model, self.kv.max_kv_size))[0, 0]
        if mx.abs(alone - logits[0, 0]).max().item() > 0.5 * mx.std(alone).item() + 1e-6:
            self.window_refusal = "this model's forward lets a token see those after it"
        if len(outputs) < 2:
            self.tap_refusal = "the model's layers cannot be stepped between"
        else:
            try:
                same = self._stages.lens(outputs[-1], inputs)
                mx.eval(same, logits)
                if not mx.allclose(same, logits, rtol=1e-3, atol=1e-3):
                    self.tap_refusal = "the model's head cannot be reached from its layers"
            except Exception as error:
                self.tap_refusal = f"the model's head cannot be reached from its layers: {error}"
        return [width(output) for output in outputs], logits.shape[-1]

    def close(self) -> None:
        """Give the model back as it was. Idempotent."""
        self._stages.close()
        self._reset()

    def _reset(self) -> None:
        self.cache = prepared(make_prompt_cache(self.model, self.kv.max_kv_size))
        self._cached: list[int] = []
        self._replay: list[int] = []
        self._inputs: list[int] = []
        self._first = 0
        self._text: Sequence[int] = ()
        self._positions = range(0)
        self._in_flight = False
        self._outputs: list[Any] = []
        self._chosen: mx.array | None = None
        self._logits: mx.array | None = None
        self._checkpoint: Checkpoint | None = None
        self._cuts = all(can_cut(entry) for entry in self.cache)

    def room(self) -> int | None:
        """How many proposals may be verified next; None: any number. Bounded only up to the length at which the cache
        is to be quantised: the rows before it are not to see quantised keys, and those after it are."""
        if self.kv.kv_bits is None:
            return None
        ahead = self.kv.quantized_kv_start - len(self._cached) - len(self._replay)
        return ahead - 1 if ahead > 0 else None

    def prefill(self, tokens: Sequence[int], sampler: Sampler, progress: Progress | None = None) -> int:
        """Make the cache hold `tokens`, reusing what it already holds. Returns how many were reused.

        The last token of a prompt is not prefilled: it is the pending token of the first step.
        """
        if self._in_flight:
            self._reset()
        self._sampler = sampler
        reused = self._rewind(tokens)
        self._in_flight = True  # until the cache is what `_cached` says
        self._replay, self._checkpoint, fresh = [], None, list(tokens[reused:])
        if progress:
            progress(reused, len(tokens))
        while len(fresh) > 1:
            # Never one token alone: it would cost a forward, and a rotating cache that was cut must not be written
            # one row at a time.
            take = max(self.kv.prefill_step_size, 2)
            take += len(fresh) == take + 1
            chunk, fresh = fresh[:take], fresh[take:]
            with self._stages.one_at_a_time() if self._submission.eager else nullcontext():
                self.model(mx.array([chunk]), cache=self.cache)
            self.kv.quantise(self.cache)
            mx.eval([entry.state for entry in self.cache])
            self._cached += chunk
            mx.clear_cache()
            if progress:
                progress(len(self._cached), len(tokens))
        # A single token rides along with the first verify input.
        self._replay, self._in_flight = fresh, False
        return reused

    def _rewind(self, tokens: Sequence[int]) -> int:
        """Cut the cache back to what it shares with `tokens`; start anew where it cannot be cut."""
        shared = common(self._cached, tokens)
        surplus = len(self._cached) - shared
        if surplus and all(can_rewind(entry, surplus) for entry in self.cache):
            for entry in self.cache:
                cut(entry, surplus)
            self._cached = self._cached[:shared]
        elif surplus:
            self._reset()
        return len(self._cached)

    def begin(
        self, pending: int, window: Sequence[int], tokens: Sequence[int], *, tap: bool = True, laws: Sequence[Any] = ()
    ) -> Ranking | None:
        """Submit the verification of `[pending, *window]`; with a tap, up to that.

        tokens  everything committed, pending included; n = len(tokens)
        laws    what the proposals were drawn from, for rejection sampling; none: they were given
        Returns the tap, or None where it is not wanted or this model has none.
        """
        assert self._sampler is not None, "prefill comes first"
        self._flush_replay(len(window))
        self._inputs = [*self._replay, pending, *window]
        self._first = len(self._replay)
        self._in_flight = True
        self._checkpoint = None if self._cuts or not window else self._checkpoint or Checkpoint(self.cache)
        inputs = mx.array([self._inputs])
        with self._stages.recording() as outputs, stepwise(self.cache):
            logits = self.model(inputs, cache=self.cache)
        rows = logits[0, self._first :]
        self._positions = range(len(tokens), len(tokens) + len(window) + 1)
        sampling = self._sampler.sampling
        self._text = [*tokens, *window] if sampling.logits_processors else ()
        self._logits, self._outputs = rows, outputs
        if sampling.coupled or sampling.greedy:
            self._chosen = self._sampler.choose(rows, self._positions, self._text)
        else:
            told = laws or [None] * len(window)
            self._chosen = judge(self._sampler, rows, self._positions, self._text, window, told)
        if not tap or self.tap_refusal is not None:
            self._submission.begin(outputs[: self.exit_layer], [], self._chosen)
            return None
        found = self.candidates(self.exit_layer, 2 * self.kappa + 1, self.adapter, ready=self._submission.eager)
        self._submission.begin(outputs[: self.exit_layer], found.arrays, self._chosen)
        return found

    def candidates(self, layer: int, count: int, adapter: TapAdapter | None = None, *, ready: bool = False) -> Ranking:
        """What a tap after `layer` layers (1 … num_layers) says of the rows under verification: the `count` likeliest
        tokens of each. Between `begin` and `commit`, for a model whose tap is not refused. Not evaluated.

        adapter  None: the plain lens
        ready    what the ranking is to say of itself
        """
        assert self._sampler is not None, "prefill comes first"
        assert 1 <= layer <= len(self._outputs), "begin comes first"
        output = self._outputs[layer - 1]
        adapted = output if adapter is None else adapter.apply(layer, output)
        lens = self._stages.lens(adapted, mx.array([self._inputs]))[0, self._first :]
        scores = self._sampler.opinion(lens, self._positions, self._text)
        return rank(scores, self._inputs[self._first + 1 :], count, ready=ready)

    def proceed(self) -> None:
        """Submit the rest, if there was a tap. In between, who reads the tap is told of it, who waits on a thread of
        its own: this may take until most of it has been computed."""
        assert self._chosen is not None
        self._submission.proceed(self._chosen)

    def finish(self) -> list[int]:
        """The target's own token of each row [γ+1]: what plain decoding would have chosen there."""
        assert self._chosen is not None
        self._submission.finish(self._outputs[self.exit_layer :], self._chosen)
        return [int(token) for token in self._chosen.tolist()]  # type: ignore[union-attr]

    def likeliest(self, count: int) -> list[list[int]]:
        """The `count` likeliest next tokens of each row of this step [γ+1][count], best first, before warping."""
        assert self._logits is not None
        return likeliest(self._logits, count)

    def logprobs(self, row: int) -> mx.array:
        """The log-probabilities [V] of a row of this step, before warping. Not evaluated."""
        assert self._logits is not None
        return _normalised(self._logits[row])

    def plain(
        self, tokens: Sequence[int], count: int, more: Callable[[], int] = lambda: 0
    ) -> Iterator[tuple[int, mx.array]]:
        """Decode `count` tokens one by one after `tokens`, as (token, log-probabilities [V]).

        more  asked before the last of them is read: how many besides

        As in mlx-lm a step is submitted before the token of the one before it is read. `tokens` may grow meanwhile.
        """
        assert self._sampler is not None, "prefill comes first"
        if count < 1:
            return
        fed, position = [*self._replay, tokens[-1]], len(tokens)
        eager = bool(self._sampler.sampling.logits_processors)  # they look at the tokens themselves
        self._replay, self._checkpoint, self._in_flight = [], None, True
        ahead: _Ahead | None = self._submit(mx.array([fed]), position, tokens)
        done = 0
        while done < count:
            done += 1
            count += more() if done == count else 0
            assert ahead is not None
            (chosen, logits, read), ahead = ahead, None
            if done < count and not eager:
                ahead = self._submit(chosen[None], position + done, tokens)
            token = read()
            # Between yields the cache holds what has been fed: with a step ahead, the token being yielded too.
            self._cached += [*fed, token] if ahead is not None else fed
            fed, self._in_flight = [] if ahead is not None else [token], False
            yield token, _normalised(logits[0])
            self._in_flight = True
            if done < count and eager:
                ahead = self._submit(mx.array([[token]]), position + done, tokens)
        self._in_flight = False

    def _submit(self, inputs: mx.array, position: int, tokens: Sequence[int]) -> _Ahead:
        """One plain step under way: its token [1], its logits [1, V], and what waits for the token and reads it."""
        assert self._sampler is not None
        with stepwise(self.cache):
            logits = self.model(inputs, cache=self.cache)[0, -1:]
        self.kv.quantise(self.cache)
        chosen = self._sampler.choose(logits, [position], tokens)
        return chosen, logits, self._submission.ahead(chosen)

    def commit(self, outcome: Outcome) -> None:
        """Keep the pending token and the accepted proposals, roll back the rest."""
        kept = self._first + 1 + outcome.accepted
        rejected = len(self._inputs) - kept
        if not rejected:
            self._cached += self._inputs
            self._replay, self._checkpoint = [], None
        elif self._cuts:
            for entry in self.cache:
                cut(entry, rejected)
            self._cached += self._inputs[:kept]
            self._replay = []
        else:
            assert self._checkpoint is not None
            self._checkpoint.restore(self.cache, len(self._inputs))
            self._replay = self._inputs[:kept]
        self._outputs, self._chosen, self._inputs, self._in_flight = [], None, [], False
        self.kv.quantise(self.cache)

    def _flush_replay(self, window: int) -> None:
        """Give a long replay a forward of its own: it would otherwise grow by every step that rejects something."""
        if len(self._replay) > max(8, window + 1):
            with stepwise(self.cache):
                self.model(mx.array([self._replay]), cache=self.cache)
            self._cached += self._replay
            self._replay, self._checkpoint = [], None


def _normalised(logits: mx.array) -> mx.array:
    return logits - mx.logsumexp(logits, keepdims=True)
