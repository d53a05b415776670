"""A window for a place of the text that is known already: the draft proposes it beside the target's prefill, or beside
plain decoding, where nobody verifies it but everybody can compare. So does what needs no model, beside a draft."""

from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import dataclass

from mirror_mlx.jobs import Ticket
from mirror_mlx.lookup import Proposer
from mirror_mlx.messages import Outcome, Window
from mirror_mlx.rendezvous import Rendezvous
from mirror_mlx.rounds import Plan
from mirror_mlx.sampling import Sampling
from mirror_mlx.trace import Trace
from mirror_mlx.verify import common

_OFFER = 6  # proposals of a window
_ROW, _EACH = 16, 32  # tokens in a row in which steps begin, and from one row to the next


@dataclass(frozen=True, slots=True)
class _Asked:
    """What follows the first `at` tokens: still to come, or there."""

    at: int
    ticket: Ticket | None = None
    window: Window | None = None


class Ahead:
    """At most one such window at a time, of one request."""

    def __init__(self, draft: Rendezvous | None, proposer: Proposer | None, sampling: Sampling, trace: Trace) -> None:
        self._draft, self._proposer, self._sampling, self._trace = draft, proposer, sampling, trace
        self._asked: _Asked | None = None

    @property
    def busy(self) -> bool:
        """Whether the draft is at work on it."""
        return self._asked is not None and self._asked.ticket is not None and not self._asked.ticket.reply.done()

    def waited(self, seconds: float) -> bool:
        """Whether the draft is still at work on it, after so much time at most."""
        if self._asked is not None and self._asked.ticket is not None:
            wait([self._asked.ticket.reply], seconds)
        return self.busy

    def open(self, tokens: Sequence[int], plan: Plan) -> None:
        """Ask for the window that follows `tokens`, unless an earlier one is still to come. A draft that has none to
        give, or too short a text, takes in the text."""
        if self.busy:
            return
        self._asked = None
        if self._draft is None:
            if self._proposer is not None and plan.length > 0:
                self._asked = _Asked(len(tokens), window=Window(tuple(self._proposer.propose(plan.length)), "lookup"))
            return
        context = list(tokens[:-1])
        if plan.fallback != "jit" or plan.length < 1 or not context:
            self._draft.begin(self._sampling, self._trace, context)
            return
        # A step before the next, whose outcome is the last token.
        self._draft.begin(self._sampling, self._trace, context[:-1])
        if ticket := self._draft.start(-1, plan, context):
            self._draft.resolve(ticket, Outcome(0, tokens[-1]))
            self._asked = _Asked(len(tokens), ticket)

    def take(self, tokens: Sequence[int]) -> Window | None:
        """The window that follows `tokens`, waited for, or what is left of an earlier one that is there; None: there is
        none."""
        late = self.busy
        asked, self._asked = self._asked, None
        if asked is None or (late and asked.at != len(tokens)):
            return None
        if asked.ticket is None:
            return asked.window if asked.at == len(tokens) else None
        assert self._draft is not None
        window = self._draft.collect(asked.ticket)
        if asked.at == len(tokens):
            return window
        if (rest := window.after(tokens[asked.at :])) is not None:
            self._draft.begin(self._sampling, self._trace, tokens[:-1])
        return rest

    def compare(self, tokens: Sequence[int]) -> tuple[Window, int, float | None] | None:
        """As much of the window as `tokens` have gone on for, how much of it they agree with, and how long each of the
        draft's passes took, ms; None: there is no window yet, or nothing to compare it with."""
        asked = self._asked
        if asked is None or len(tokens) <= asked.at:
            return None
        window = asked.window
        if asked.ticket is not None:
            if not asked.ticket.reply.done():
                return None
            window = None if asked.ticket.reply.exception() else asked.ticket.reply.result()
        self._asked = None
        if window is None:
            return None
        real = tokens[asked.at :]
        window = window.cut(len(real))
        passes = [] if asked.ticket is None else asked.ticket.passes
        bare = [one.ns for one in passes if not one.rows] or [one.ns for one in passes]
        mean = sum(bare) / len(bare) / 1e6 if bare else None
        return window, common(window.tokens, real), mean


class Offers:
    """What a proposer would have had to say amid plain decoding, where the draft is asked and it is not. Whether it
    is worth more than the draft is not known otherwise before both are used. Its steps are played, one after the other:
    of windows for any token those that hold are the more, the more tokens they have. Many tokens at once, as each by
    itself would find the proposer out of the caches.

    >>> from mirror_mlx.lookup import PromptLookup
    >>> lookup, text = PromptLookup(), [1, 2, 3, 4, 5] * 8
    >>> lookup.begin(text)
    >>> offers = Offers(lookup)
    >>> offers.begin(len(text))
    >>> text += [1, 9, 1, 2, 3, 4, 5, 8]
    >>> offers.take(text), offers.take(text)
    (((0, 0), (6, 0), (6, 3)), ())
    """

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self._told = 0  # tokens that the proposer knows of
        self._row = -_EACH  # where the first of the steps begins
        self._counts = False  # whether the next one begins where one before it ends
        self._found: list[tuple[int, int]] = []

    def begin(self, told: int) -> None:
        """Plain decoding begins, after so many tokens, of which the proposer knows."""
        self._told, self._counts = told, False

    def follow(self, tokens: Sequence[int], ends: bool = False) -> None:
        """The text has come so far. ends: plain decoding has, and the proposer is to know of all of it."""
        while self._told < len(tokens):
            at = self._told
            if at >= self._row + _EACH:
                self._row, self._counts = at, False
            end = self._row + _EACH
            if at < self._row + _ROW:
                window = self._proposer.propose(_OFFER)
                held = common(window, tokens[at : at + len(window)])
                end = at + held + 1
                if end > len(tokens) and not ends:
                    return
                if end <= len(tokens):
                    if self._counts:
                        self._found.append((len(window), held))
                    self._counts = True
            self._proposer.extend(tokens[at:end])
            self._told = min(end, len(tokens))

    def take(self, tokens: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """The text has come so far. Of each window that was compared since the last time, how long it was and how many
        of its proposals held."""
        self.follow(tokens)
        found, self._found = tuple(self._found), []
        return found
