"""Branches of a draft model whose state is not keys and values (recurrent, hybrid): each on a copy of the state.

The same calls as `Tree`, row by row: a row's state is the state after the row before it on its path.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from mirror_mlx.draft.tree import Row
from mirror_mlx.rollback import cloned


class Forks:
    """A draft model with one state for each row of the step. Arrays are shared until they are written."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._states: dict[int, Any] = {}  # after the row in this slot; -1: before the first
        self._empty = make_prompt_cache(model)
        self._trunk = cloned(self._empty)
        self._tokens: list[int] = []
        self._base = 0  # slots below it are the trunk's, in `_trunk`

    def close(self) -> None:
        self._states.clear()
        self._trunk = []

    @property
    def used(self) -> int:
        return len(self._tokens)

    def prefill(self, tokens: Sequence[int], step: int = 2048) -> None:
        """Append tokens to the trunk; there must be no branches."""
        for start in range(0, len(tokens), step):
            chunk = list(tokens[start : start + step])
            mx.eval(self._model(mx.array([chunk]), cache=self._trunk))
            self._tokens += chunk
        self._base = len(self._tokens)

    def forward(self, rows: Sequence[Row]) -> mx.array:
        """Logits [R, V] of rows. Row i is written to slot `used + i`; `slots` may name rows of the same forward."""
        logits = []
        for row in rows:
            path = [*range(self._base, row.trunk), *row.slots]
            state = cloned(self._states[path[-1]] if path else self._trunk)
            logits.append(self._model(mx.array([[row.token]]), cache=state)[0])
            mx.eval(logits[-1])
            self._states[len(self._tokens)] = state
            self._tokens.append(row.token)
        return mx.concatenate(logits)

    def cut(self, length: int) -> None:
        """Forget all slots from `length` on. A trunk is not cut back: it is computed again."""
        if length < self._base:
            kept = self._tokens[:length]
            self._trunk, self._tokens, self._base = cloned(self._empty), [], 0
            self.prefill(kept)
        elif length > self._base:
            self._trunk = self._states[length - 1]
        del self._tokens[length:]
        self._base = length
        self._states.clear()
