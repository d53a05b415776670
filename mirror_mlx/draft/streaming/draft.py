"""The streaming draft as the runtime's `Draft`: several tokens for every branch in each pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx

from mirror_mlx.draft.streaming.layout import Feed, lay_out
from mirror_mlx.draft.streaming.model import whole
from mirror_mlx.draft.streaming.segments import Segments
from mirror_mlx.errors import UsageError
from mirror_mlx.messages import Candidates, Key, Root
from mirror_mlx.ranking import rank
from mirror_mlx.sampling import Sampler, Sampling


@dataclass(slots=True)
class _Branch:
    """A branch: the trunk slots it sees, the slots of its own mains, and what is fed to it next."""

    trunk: int
    slots: list[int]
    feed: list[int]


class StreamingDraft:
    """Each pass proposes the main stream's token and one token of every lookahead stream.

    trust  a pass takes its streams at their word: always 1 + streams tokens, computed as mains in the next pass
    exact  the next pass checks them: a branch gets only what the main stream would have said one by one, which is
           1 … 1 + streams tokens, from (1 + streams)² rows where trust computes 1 + 2·streams

    """

    max_roots: int | None = None

    def __init__(self, segments: Segments, *, streams: int | None = None, exact: bool = False) -> None:
        self.vocab_size, self.context_length = segments.vocab_size, segments.context_length
        self._segments = segments
        self.use(streams, exact=exact)
        self._sampler = Sampler(Sampling())
        self._base = 0  # trunk tokens before this step's rows
        self._queued: list[int] = []  # glued rows that wait for the next pass
        self._glued = 0
        self._branches: dict[Key, _Branch] = {}

    def use(self, streams: int | None, *, exact: bool = False) -> None:
        """From now on propose with so many of the trained streams (None: all; 0: the main stream alone,
        autoregressive), at their word or `exact`. Between requests only. Raises UsageError for more than there are."""
        trained = self._segments.streams
        if streams is not None and not 0 <= streams <= trained:
            raise UsageError(f"streams is {streams}: this draft was trained with {trained}")
        self.streams = trained if streams is None else streams
        self.exact = exact

    def begin(self, sampling: Sampling) -> None:
        self._sampler = Sampler(sampling)

    def prefill(self, tokens: Sequence[int]) -> None:
        self._check(tokens)
        self._segments.prefill(tokens)
        self._base = self._segments.used

    def glue(self, tokens: Sequence[int], candidates: int) -> Candidates | None:
        self._check(tokens)
        self._queued, self._glued = list(tokens), len(tokens)
        if not candidates:
            return None  # the rows ride along with the first pass
        layout = lay_out(self._queue(), self._segments.used, 0)
        logits = self._segments.run(layout, list(layout.mains[0]))
        positions = [position + 1 for position in layout.second.positions.tolist()]
        scores = self._sampler.scores(self._whole(logits), positions)
        return rank(scores, tokens[1:], candidates).read()

    def expand(self, roots: Sequence[Root]) -> None:
        for root in roots:
            if root.token < self.vocab_size and root.row < self._glued:
                self._branches[root.key] = _Branch(self._base + root.row + 1, [], [root.token])

    def advance(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[int]]:
        known = [key for key in keys if key in self._branches]
        if not known:
            return {}
        branches = [self._branches[key] for key in known]
        glue = self._queue()
        carry = "every" if self.exact else "last"
        feeds = [*glue, *(Feed(branch.trunk, branch.slots, branch.feed, carry) for branch in branches)]
        layout = lay_out(feeds, self._segments.used, self.streams)
        wanted: list[int] = []
        for mains, streams in zip(layout.mains[len(glue) :], layout.streams[len(glue) :], strict=True):
            for place, row in enumerate(mains):
                if self.exact or place == len(mains) - 1:
                    wanted += [row, *streams[place]]
        tokens = iter(self._chosen(layout.second.positions, self._segments.run(layout, wanted), wanted))
        proposed: dict[Key, Sequence[int]] = {}
        for number, (key, branch) in enumerate(zip(known, branches, strict=True), start=len(glue)):
            rows = len(branch.feed) if self.exact else 1
            said = [[next(tokens) for _ in range(1 + self.streams)] for _ in range(rows)]
            held, slots = 0, layout.slots(number)
            if self.exact:
                while held + 1 < rows and said[held][0] == branch.feed[held + 1]:
                    held += 1
                proposed[key] = [row[0] for row in said[: held + 1]]
                slots = slots[: held + 1]
            else:
                proposed[key] = said[0]
            branch.slots = [*branch.slots, *slots]
            branch.feed = said[held]
        return proposed

    def commit(self, rows: int) -> None:
        if self._queued and rows:  # nothing was drafted in this step
            self._segments.prefill(self._queued[:rows])
        self._cut(self._base + rows)

    def rewind(self, length: int) -> None:
        self._cut(length)

    def close(self) -> None:
        self._branches.clear()
        self._segments.close()

    def _cut(self, length: int) -> None:
        self._segments.cut(length)
        self._branches.clear()
        self._queued, self._glued, self._base = [], 0, length

    def _queue(self) -> list[Feed]:
        queued, self._queued = self._queued, []
        return [Feed(self._base, [], queued, "none")] if queued else []

    def _chosen(self, positions: Sequence[int], logits: mx.array, rows: Sequence[int]) -> list[int]:
        """The full ids of the best tokens of these rows [R, V']."""
        scores = self._sampler.scores(self._whole(logits), [int(positions[row]) + 1 for row in rows])
        found: list[int] = mx.argmax(scores, axis=-1).tolist()
        return found

    def _whole(self, logits: mx.array) -> mx.array:
        """Over the whole vocabulary, by whose ids the noise goes."""
        return whole(logits, self._segments.token_ids, self.vocab_size)

    def _check(self, tokens: Sequence[int]) -> None:
        if not all(0 <= token < self.vocab_size for token in tokens):
            raise ValueError("the text has tokens outside the draft's vocabulary")
