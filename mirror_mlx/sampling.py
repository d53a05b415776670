"""Sampling: mlx-lm's warpers in mlx-lm's order, with noise that depends on the position alone.

A token is `argmax(warp(logits) / T + G[position])`, where G is Gumbel noise: a pure function of (seed, request,
position, token id). Plain decoding, verification, the tap and the draft all use the same G, so the same seed gives the
same text in every mode, and the draft's guesses agree with the target's samples as often as their laws allow
(Daliri, Musco & Suresh, arXiv 2408.07978).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

import mlx.core as mx
import numpy as np
from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p, apply_xtc

from mirror_mlx import warping
from mirror_mlx.errors import UsageError

LogitsProcessor = Callable[[mx.array, mx.array], mx.array]

_BLOCK = 16  # positions whose noise is made in one go
_COLD = 1e-6  # a temperature below it is greedy: its inverse would leave fp32's range
GUMBEL, XTC, DRAFT, COIN = range(4)  # tags: one family of noise for each use


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. Fields, ranges and order as mlx-lm's `make_sampler`; temperature 0 is greedy.

    As in mlx-lm, top-p and min-p act on the untempered distribution.

    What an engine adds of its own:
    coupled     target and draft use the same noise; not so where proposals are accepted by rejection sampling
    downweight  a draft's F likeliest tokens get C times their probability (Saguaro sampling): (F, C)
    """

    temperature: float = 0.0
    top_p: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    seed: int = 0
    min_tokens_to_keep: int = 1
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    xtc_special_tokens: tuple[int, ...] = ()
    logits_processors: tuple[LogitsProcessor, ...] = field(default=(), repr=False)
    coupled: bool = True
    downweight: tuple[int, float] | None = None

    @property
    def greedy(self) -> bool:
        return self.temperature < _COLD

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, "0 or more", self.temperature >= 0)
        _check("top_p", self.top_p, "in [0, 1]", 0 <= self.top_p <= 1)
        _check("min_p", self.min_p, "in [0, 1]", 0 <= self.min_p <= 1)
        _check("top_k", self.top_k, "0 or more", self.top_k >= 0)
        _check("seed", self.seed, "0 or more", self.seed >= 0)
        _check("min_tokens_to_keep", self.min_tokens_to_keep, "1 or more", self.min_tokens_to_keep >= 1)
        _check("xtc_probability", self.xtc_probability, "in [0, 1]", 0 <= self.xtc_probability <= 1)
        _check("xtc_threshold", self.xtc_threshold, "in [0, 0.5]", 0 <= self.xtc_threshold <= 0.5)


def _check(name: str, given: float, expected: str, fine: bool) -> None:
    if not fine:
        raise UsageError(f"{name} is {given}: it must be {expected}")


def _key(*parts: int) -> int:
    """32 bits: half of a key. A family of noise has seed, request and tag; positions are its other half."""
    return int.from_bytes(blake2b("/".join(map(str, parts)).encode(), digest_size=4).digest(), "little")


class Sampler:
    """Chooses tokens for rows of logits. Holds arrays: one for each thread and stream that samples."""

    def __init__(self, sampling: Sampling, request: int = 0) -> None:
        self.sampling = sampling
        self._keys = [_key(sampling.seed, request, tag) for tag in (GUMBEL, XTC, DRAFT, COIN)]
        self._blocks: dict[int, mx.array] = {}

    def choose(self, logits: mx.array, positions: Sequence[int], tokens: Sequence[int] = ()) -> mx.array:
        """The token of each row: logits [R, V] → ids [R]. Ties go to the lowest id. Arguments as `scores`."""
        return mx.argmax(self.scores(logits, positions, tokens), axis=-1)

    def scores(self, logits: mx.array, positions: Sequence[int], tokens: Sequence[int] = ()) -> mx.array:
        """What the argmax is taken over: logits [R, V] → fp32 [R, V].

        positions  [R]  the absolute position each row predicts
        tokens          the text so far with the proposals; row r's context is `tokens[:positions[r]]`. Only
                        logits processors look at it.
        """
        warped = self.warped(logits, positions, tokens)
        return warped if self.sampling.greedy else warped + self.noise(positions, warped.shape[-1])

    def opinion(self, logits: mx.array, positions: Sequence[int], tokens: Sequence[int] = ()) -> mx.array:
        """What likely tokens are ranked by: the scores, where their noise may be known beforehand."""
        return (self.scores if self.sampling.coupled else self.warped)(logits, positions, tokens)

    def warped(self, logits: mx.array, positions: Sequence[int], tokens: Sequence[int] = ()) -> mx.array:
        """The same without the noise: the softmax of it is the law that tokens are drawn from."""
        logits = self._process(logits, positions, tokens).astype(mx.float32)
        if self.sampling.greedy:
            return logits
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        return self.warp(logprobs, positions)

    def scores_of(self, ids: np.ndarray, logprobs: np.ndarray, positions: Sequence[int], vocab_size: int) -> np.ndarray:
        """The same where only some tokens of each row are known: ids and their log-probabilities [R, K] → [R, K].

        On the CPU, wherever the rest runs: a draft on the Neural Engine does not wait for the GPU. Warpers see these
        tokens alone, and logits processors are not asked.
        """
        if self.sampling.greedy:
            return logprobs
        blocks = {block: np.asarray(drawn) for block, drawn in self._drawn_for(positions, vocab_size, mx.cpu).items()}
        noise = [blocks[p // _BLOCK][p % _BLOCK, row] for p, row in zip(positions, ids, strict=True)]
        return self.warp_few(ids, logprobs, positions) + np.stack(noise)

    def opinion_of(
        self, ids: np.ndarray, logprobs: np.ndarray, positions: Sequence[int], vocab_size: int
    ) -> np.ndarray:
        """`opinion` where only some tokens of each row are known: see `scores_of`."""
        if self.sampling.coupled or self.sampling.greedy:
            return self.scores_of(ids, logprobs, positions, vocab_size)
        return self.warp_few(ids, logprobs, positions)

    def _process(self, logits: mx.array, positions: Sequence[int], tokens: Sequence[int]) -> mx.array:
        processors = self.sampling.logits_processors
        if not processors:
            return logits
        rows = []
        for row, position in enumerate(positions):
            one, context = logits[row : row + 1], mx.array(list(tokens[:position]), dtype=mx.uint32)
            for processor in processors:
                one = processor(context, one)
            rows.append(one)
        return mx.concatenate(rows)

    def warp(self, logprobs: mx.array, positions: Sequence[int]) -> mx.array:
        """mlx-lm's warpers, and the temperature: [R, V] → [R, V]."""
        s = self.sampling
        if 0 < s.top_p < 1:
            logprobs = apply_top_p(logprobs, s.top_p)
        if s.min_p > 0:
            logprobs = apply_min_p(logprobs, s.min_p, min(s.min_tokens_to_keep, logprobs.shape[-1]))
        if s.xtc_probability > 0:
            # mlx-lm draws its coin from the global stream: ask it for the certain case and toss a keyed coin here.
            cut = apply_xtc(logprobs, 1.0, s.xtc_threshold, list(s.xtc_special_tokens))
            coins = mx.stack([self._coin(XTC, p) for p in positions])
            logprobs = mx.where((coins > s.xtc_probability)[:, None], logprobs, cut)
        if 0 < s.top_k < logprobs.shape[-1]:
            logprobs = apply_top_k(logprobs, s.top_k)
        return logprobs * (1 / s.temperature)

    def warp_few(self, ids: np.ndarray, logprobs: np.ndarray, positions: Sequence[int]) -> np.ndarray:
        """`warp` where only some tokens of each row are known: [R, K] → [R, K], on the CPU."""
        s = self.sampling
        if 0 < s.top_p < 1:
            logprobs = warping.top_p(logprobs, s.top_p)
        if s.min_p > 0:
            logprobs = warping.min_p(logprobs, s.min_p, min(s.min_tokens_to_keep, logprobs.shape[-1]))
        if s.xtc_probability > 0:
            tossed = np.array([self._coin(XTC, p, mx.cpu).item() <= s.xtc_probability for p in positions])
            cut = warping.xtc(logprobs, s.xtc_threshold, np.isin(ids, s.xtc_special_tokens))
            logprobs = np.where(tossed[:, None], cut, logprobs)
        if 0 < s.top_k < logprobs.shape[-1]:
            logprobs = warping.top_k(logprobs, s.top_k)
        return (logprobs * (1 / s.temperature)).astype(np.float32)

    def coins(self, positions: Sequence[int]) -> mx.array:
        """One for each position, in [0, 1)."""
        return mx.stack([self._coin(COIN, p) for p in positions])

    def _coin(self, family: int, position: int, device: mx.DeviceType | None = None) -> mx.array:
        return mx.random.uniform(key=_position_key(self._keys[family], position), stream=device)

    def noise(self, positions: Sequence[int], vocab_size: int) -> mx.array:
        """Gumbel noise [R, V] of these positions."""
        blocks = self._drawn_for(positions, vocab_size)
        offset = {block: i * _BLOCK for i, block in enumerate(blocks)}
        rows = mx.array([offset[p // _BLOCK] + p % _BLOCK for p in positions])
        return mx.concatenate(list(blocks.values()))[rows, :vocab_size]

    def draws(self, ids: np.ndarray, positions: Sequence[int], after: int) -> np.ndarray:
        """A draft's own Gumbel noise [R, K] of the tokens ids [R, K], which nothing else is drawn with. after: how many
        tokens the text had; who draws for the same position later draws anew."""
        words = {position: _key(self._keys[DRAFT], after, position) for position in set(positions)}
        rows = np.array([words[position] for position in positions])[:, None]
        keys = np.stack([np.broadcast_to(rows, ids.shape), ids], -1).astype(np.uint32)
        return np.array(mx.vmap(partial(_gumbel, (), mx.cpu))(mx.array(keys.reshape(-1, 2)))).reshape(ids.shape)

    def _drawn_for(
        self, positions: Sequence[int], vocab_size: int, device: mx.DeviceType | None = None
    ) -> dict[int, mx.array]:
        """The blocks that these positions are in, noise [_BLOCK, ≥ V] each, drawn on that device where nobody has asked
        for them before. Those long past are forgotten."""
        wanted = sorted({p // _BLOCK for p in positions})
        for block in wanted:
            if block not in self._blocks:
                keys = [[self._keys[GUMBEL], p] for p in range(block * _BLOCK, (block + 1) * _BLOCK)]
                draw = mx.vmap(partial(_gumbel, (_drawn(vocab_size),), device))
                self._blocks[block] = draw(mx.array(keys, dtype=mx.uint32))
        for old in [block for block in self._blocks if block < wanted[0] - 1]:
            del self._blocks[old]
        return {block: self._blocks[block] for block in wanted}


def _drawn(vocab_size: int) -> int:
    """How many entries are drawn for a vocabulary: a family's models differ in their padding (151,936 and 152,064 in
    Qwen2.5), and a token's noise must not.

    >>> _drawn(151_936), _drawn(152_064), _drawn(4096)
    (163840, 163840, 4096)
    """
    step = 1 << max(vocab_size.bit_length() - 4, 0)
    return -(-vocab_size // step) * step


def _gumbel(shape: tuple[int, ...], device: mx.DeviceType | None, key: mx.array) -> mx.array:
    return mx.random.gumbel(shape, key=key, stream=device)


def _position_key(family: int, position: int) -> mx.array:
    return mx.array([family, position], dtype=mx.uint32)
