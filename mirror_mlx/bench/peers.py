"""The peers: mlx-lm's own `generate_step` and `speculative_generate_step`, called and not changed.

What surrounds them is what mlx-lm's `stream_generate` puts around them: the wired limit, and text as it comes. They run
on the caller's stream, on the target's core. A draft is made to take a set time for each pass by a wrapper around it.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step, speculative_generate_step, wired_limit
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache
from mlx_lm.sample_utils import make_sampler

from mirror_mlx.bench.lab import Pace
from mirror_mlx.bench.spec_run import BASE, Account
from mirror_mlx.prompts import TextStream
from mirror_mlx.sampling import Sampler, Sampling

PREFILL = 2048  # prompt tokens in one forward, for every method and both models
_PREFILL_ROWS = 2  # a pass over more rows than this is a piece of a prompt: decoding has one row, or two


def view(model: nn.Module) -> Any:
    """The same model as another object: the parameters are shared, the modules are not.

    Each method has a view of its own, so that what the runtime puts around one method's layers is not in another's way.
    """
    return copy.deepcopy(model, {id(array): array for _, array in tree_flatten(model) if isinstance(array, mx.array)})


class PacedModel:
    """A draft model for mlx-lm whose forward is evaluated, and then waits until a set time is over.

    A piece of a prompt is a pass too; of it, as in mlx-lm, only keys and values are computed.
    """

    def __init__(self, model: nn.Module, pace: Pace) -> None:
        self._model, self._pace = model, pace

    def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
        with self._pace:
            logits = self._model(tokens, cache=cache)
            mx.eval(logits if tokens.shape[1] <= _PREFILL_ROWS else [entry.state for entry in cache])
        return logits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)  # `layers`, and `make_cache` where there is one


def keyed(sampling: Sampling, first: int) -> Callable[[mx.array], mx.array] | None:
    """A sampler for `generate_step` with the runtime's noise: its calls are the positions from `first` on.

    None where it is greedy: mlx-lm's own then.
    """
    if sampling.temperature == 0:
        return None
    sampler, positions = Sampler(sampling), count(first)
    return lambda logprobs: sampler.choose(logprobs, [next(positions)])


class Plain:
    """Plain decoding, the baseline. Its noise is keyed by position, as the runtime's."""

    name, own_noise = BASE, False

    def __init__(self, model: nn.Module, tokenizer: Any) -> None:
        self._model, self._tokenizer, self._steps = model, tokenizer, 0

    def fresh(self) -> None:
        pass

    def empty(self, prompt: Sequence[int]) -> None:
        pass  # there is no cache but that of the request

    def stream(self, prompt: Sequence[int], limit: int, sampling: Sampling) -> Iterator[int]:
        """mlx-lm submits a step before it yields the token before, the last one too: a forward more than tokens."""
        self._steps, stream, text = 0, mx.default_stream(mx.default_device()), TextStream(self._tokenizer)
        with wired_limit(self._model, [stream]):
            for token, _ in generate_step(
                mx.array(prompt, mx.uint32), self._model, stream, max_tokens=limit,
                sampler=keyed(sampling, len(prompt)), prefill_step_size=PREFILL,
            ):  # fmt: skip
                self._steps += 1
                text.add(token)
                yield token

    def account(self) -> Account:
        mx.synchronize(mx.default_stream(mx.default_device()))
        return Account([1] * self._steps, mode="ar")

    def close(self) -> None:
        pass


class MlxSpeculation:
    """mlx-lm's speculative decoding with an autoregressive draft, `num_draft_tokens` proposals a step.

    Sampled, target and draft draw from mlx-lm's own random numbers: other tokens than plain decoding's, and a proposal
    holds only where two independent draws agree.
    """

    own_noise = True

    def __init__(
        self, name: str, model: nn.Module, draft: nn.Module, tokenizer: Any, num_draft_tokens: int, seconds: float
    ) -> None:
        """seconds: how long each of the draft's passes takes; 0: as long as it does."""
        self.name = name
        self._model, self._tokenizer, self._length = model, tokenizer, num_draft_tokens
        self._draft: Any = PacedModel(draft, Pace(seconds)) if seconds else draft
        self._steps: list[int] = []
        self._open = 0

    def fresh(self) -> None:
        pass

    def empty(self, prompt: Sequence[int]) -> None:
        pass

    def stream(self, prompt: Sequence[int], limit: int, sampling: Sampling) -> Iterator[int]:
        self._steps, self._open = [], 0
        stream, text = mx.default_stream(mx.default_device()), TextStream(self._tokenizer)
        mx.random.seed(sampling.seed)
        sampler = make_sampler(temp=sampling.temperature) if sampling.temperature else None
        with wired_limit(self._model, [stream]):
            for token, _, proposed in speculative_generate_step(
                mx.array(prompt, mx.uint32), self._model, self._draft, stream, num_draft_tokens=self._length,
                max_tokens=limit, sampler=sampler, prefill_step_size=PREFILL,
            ):  # fmt: skip
                self._open += 1
                if not proposed:  # a step ends with the target's own token
                    self._steps.append(self._open)
                    self._open = 0
                text.add(token)
                yield token

    def account(self) -> Account:
        mx.synchronize(mx.default_stream(mx.default_device()))
        return Account([*self._steps, *([self._open] if self._open else [])], mode="sd")

    def close(self) -> None:
        pass


def refusal(model: nn.Module) -> str | None:
    """Why mlx-lm does not speculate with this target, or None."""
    cache = make_prompt_cache(model)
    if can_trim_prompt_cache(cache):
        return None
    kinds = ", ".join(sorted({type(entry).__name__ for entry in cache if not entry.is_trimmable()}))
    return f"mlx-lm cannot trim this target's cache ({kinds})"
