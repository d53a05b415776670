"""A draft from any mlx-lm model with the target's tokenizer: one token for every branch in each pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx
import mlx.nn as nn

from mirror_mlx.draft.forks import Forks
from mirror_mlx.draft.pieces import Pieces
from mirror_mlx.draft.tree import Row, Tree
from mirror_mlx.limits import context_length
from mirror_mlx.messages import Candidates, Key, Root
from mirror_mlx.ranking import rank
from mirror_mlx.rejection import Law, propose
from mirror_mlx.sampling import Sampler, Sampling


class Trunk(Protocol):
    """Where a draft model's state is kept: `Tree` for keys and values, `Forks` for everything else."""

    @property
    def used(self) -> int: ...
    def prefill(self, tokens: Sequence[int]) -> None: ...
    def forward(self, rows: Sequence[Row]) -> mx.array: ...
    def cut(self, length: int) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Branch:
    """A branch: the trunk slots it sees, the slots of its own rows, and the token that is not yet computed."""

    trunk: int
    slots: list[int]
    token: int


class AutoregressiveDraft:
    """Any mlx-lm model. Branches are flattened into one forward where the model's state is keys and values (checked by
    comparing with plain forwards at load); others run branch by branch, and then want few roots."""

    host = "mlx"

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.context_length = context_length(model)
        self._pieces = Pieces(model.layers)
        self._trunk, self.vocab_size = _trunk_for(model)
        self.max_roots: int | None = None if isinstance(self._trunk, Tree) else 4
        self._sampler = Sampler(Sampling())
        self._base = 0  # trunk tokens before this step's rows
        self._queued: list[int] = []  # glued rows that wait for the next forward
        self._glued = 0
        self._branches: dict[Key, _Branch] = {}
        self.confidences: dict[Key, Sequence[float]] = {}
        self.laws: dict[Key, Sequence[Law]] = {}

    def begin(self, sampling: Sampling) -> None:
        self._sampler = Sampler(sampling)

    def prefill(self, tokens: Sequence[int]) -> None:
        with self._pieces:
            self._trunk.prefill(tokens)
        self._base = self._trunk.used

    def glue(self, tokens: Sequence[int], candidates: int) -> Candidates | None:
        if not all(0 <= token < self.vocab_size for token in tokens):
            raise ValueError("the text has tokens outside the draft's vocabulary")
        self._queued, self._glued = list(tokens), len(tokens)
        if not candidates:
            return None  # the rows ride along with the first pass
        logits, positions = self._forward(self._glue_rows(), range(len(tokens)))
        return rank(self._sampler.opinion(logits, positions), tokens[1:], candidates).read()

    def expand(self, roots: Sequence[Root]) -> None:
        for root in roots:
            if root.token < self.vocab_size and root.row < self._glued:
                self._branches[root.key] = _Branch(self._base + root.row + 1, [], root.token)

    def advance(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[int]]:
        known = [key for key in keys if key in self._branches]
        if not known:
            return {}
        branches = [self._branches[key] for key in known]
        rows = self._glue_rows()
        glued, first = len(rows), self._trunk.used
        rows += [Row(b.token, b.trunk + len(b.slots), b.trunk, b.slots) for b in branches]
        logits, positions = self._forward(rows, range(glued, len(rows)))
        made = propose(self._sampler, logits, positions, self._base)
        self.confidences = {key: [certain] for key, certain in zip(known, made.confidences, strict=True)}
        self.laws = {key: [law] for key, law in zip(known, made.laws or (), strict=bool(made.laws))}
        proposed: dict[Key, Sequence[int]] = {}
        for i, (key, branch, token) in enumerate(zip(known, branches, made.tokens, strict=True)):
            branch.slots = [*branch.slots, first + glued + i]
            branch.token = token
            proposed[key] = [token]
        return proposed

    def commit(self, rows: int) -> None:
        if self._queued and rows:  # nothing was drafted in this step
            with self._pieces:
                mx.eval(self._trunk.forward(self._glue_rows()[:rows]))
        self._cut(self._base + rows)

    def rewind(self, length: int) -> None:
        self._cut(length)

    def close(self) -> None:
        self._branches.clear()
        self._trunk.close()
        self._pieces.close()

    def _cut(self, length: int) -> None:
        self._trunk.cut(length)
        self._branches.clear()
        self._queued, self._glued, self._base = [], 0, length

    def _glue_rows(self) -> list[Row]:
        base = self._base
        return [Row(token, base + i, base, list(range(base, base + i))) for i, token in enumerate(self._queued)]

    def _forward(self, rows: Sequence[Row], wanted: range) -> tuple[mx.array, list[int]]:
        """Logits [wanted, V] of a forward over `rows`, evaluated, and the positions they are of."""
        with self._pieces:
            logits = self._trunk.forward(rows)[wanted.start : wanted.stop]
            mx.eval(logits)
        self._queued = []
        return logits, [rows[i].position + 1 for i in wanted]


def _trunk_for(model: nn.Module) -> tuple[Trunk, int]:
    """A tree if it gives what plain forwards give on this model, else forks; and the model's vocabulary."""
    logits = model(mx.array([[0, 1, 2, 1]]))[0]
    other = model(mx.array([[0, 1, 1, 2]]))[0]
    mx.eval(logits, other)
    try:
        tree = Tree(model)
    except ValueError:
        return Forks(model), logits.shape[-1]
    try:
        tree.prefill([0])
        # Glue 1, then two branches that leave after it: 2, 1 and 1, 2.
        first = tree.forward([Row(1, 1, 1), Row(2, 2, 1, [1]), Row(1, 2, 1, [1])])
        second = tree.forward([Row(1, 3, 2, [2]), Row(2, 3, 2, [3])])
        given = mx.concatenate([first, second])
        wanted = mx.stack([logits[1], logits[2], other[2], logits[3], other[3]])
        if mx.allclose(given, wanted, rtol=1e-2, atol=1e-2 * mx.abs(wanted).max().item()):
            tree.cut(0)
            return tree, logits.shape[-1]
    except Exception:  # a forward that takes a cache apart: the comparison decides, not the reason
        pass
    tree.close()
    return Forks(model), logits.shape[-1]
