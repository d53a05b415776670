"""What is believed of the text and the draft: running counts in which what is long past weighs less and less. Pure."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

from mirror_mlx.tuning.inverse import inverse
from mirror_mlx.tuning.mean import Mean

KEEP = 0.97
"""Of a count, each time there is a newer one: half of it is forgotten in 23."""
_SURE = 0.995


def alive(rates: Sequence[float], count: int) -> list[float]:
    """The probability that at least 1, 2, … `count` proposals hold, from how often one at each place does, given that
    those before it did. Places beyond the last are as that one.

    >>> alive([0.5, 0.8], 3)
    [0.5, 0.4, 0.32000000000000006]
    """
    found, left = [], 1.0
    for place in range(count):
        left *= rates[min(place, len(rates) - 1)]
        found.append(left)
    return found


def unsure(rate: float) -> float:
    """The same, but neither never nor always: what was seen is a sample."""
    return min(max(rate, 1 - _SURE), _SURE)


def _odds(rate: float) -> float:
    rate = unsure(rate)
    return rate / (1 - rate)


def likelier(rate: float, factor: float) -> float:
    """How often something holds whose odds are so many times those of what holds so often.

    >>> likelier(0.5, 4.0), likelier(0.8, 1.0)
    (0.8, 0.8)
    """
    return factor * rate / (1 - rate + factor * rate)


def outcomes(length: int, accepted: int, beyond: float | None) -> list[float]:
    """By place, whether the proposals held that verification came to. beyond: how likely the next one was to, which was
    cut off; None: none was."""
    found = [float(accepted > place) for place in range(min(length, accepted + 1))]
    return found if beyond is None or accepted < length else [*found, beyond]


def _agreement(share: float, streams: int) -> float:
    """How often one stream agrees with the main one, where on average so large a share of them does, up to the first
    that does not.

    >>> [round(_agreement(share, 2), 2) for share in (0.0, 0.375, 1.0)]
    [0.0, 0.5, 1.0]
    """
    highest = share ** (1 / streams) if share else 0.0
    return inverse(lambda rate: sum(alive([rate], streams)), share * streams, share, highest, halvings=20)


class Acceptance:
    """How often a proposal holds, by its place in the window, given that those before it did.

    prior   what is believed before anything was seen
    weight  as if so many had been seen
    keep    of a count, each time there is a newer one

    A place that was seen seldom of late is taken to be as it has been for longer. One that was seen seldom at all is
    taken to be half as all places are together, half as the one before it: who proposes a few tokens learns what more
    would be worth, and where one holds the next is likelier to. Places beyond the last one seen are as that one.

    >>> seen = Acceptance(prior=0.5, weight=2.0)
    >>> for _ in range(200):
    ...     seen.saw(length=3, accepted=2)
    >>> [round(share, 1) for share in seen.alive(3)]
    [1.0, 1.0, 0.0]
    >>> for _ in range(20):  # a text that is hard to foresee
    ...     seen.saw(length=1, accepted=0)
    >>> hard = seen.rate(0)
    >>> seen.lapsed(left=0.01)
    >>> round(hard, 1), round(seen.rate(0), 1)
    (0.6, 0.9)
    """

    _KEEP_ALL = 0.99
    _KEEP_UNSEEN = 0.997
    _KEEP_LONG = 0.997
    _WEIGHT = 4.0
    _LONG = 6.0  # what has been for longer counts for as many seen of late

    def __init__(self, prior: float = 0.6, weight: float = 4.0, keep: float = KEEP) -> None:
        self._keep = keep
        self._all = Mean(prior * weight, weight)
        self._late: list[Mean] = []  # by place
        self._ever: list[Mean] = []  # the same for longer

    def saw(self, length: int, accepted: int, beyond: float | None = None) -> None:
        """A window of `length` proposals was verified. beyond: how likely the next one was to hold, which was cut off;
        None: there was none. (Those that are verified hold more often than those that are not.)"""
        for place, held in enumerate(outcomes(length, accepted, beyond)):
            self.counted(place, held)
        self.faded(length)

    def faded(self, length: int) -> None:
        """A window of so many proposals says nothing of places beyond, of which it is long past what was seen: who has
        had bad luck there tries again some time."""
        for count in (*self._late[length + 1 :], *self._ever[length + 1 :]):
            count.faded(self._KEEP_UNSEEN)

    def lapsed(self, left: float) -> None:
        """What was seen of late says so much of what is to come: a share."""
        for count in self._late:
            count.faded(left)

    def counted(self, place: int, held: float) -> None:
        """A proposal at this place, which verification came to or would have come to."""
        while place >= len(self._late):
            self._late.append(Mean())
            self._ever.append(Mean())
        self._late[place].saw(held, self._keep)
        self._ever[place].saw(held, self._KEEP_LONG)
        self._all.saw(held, self._KEEP_ALL)

    def rate(self, place: int) -> float:
        return self.rates(place + 1)[-1]

    def rates(self, count: int) -> list[float]:
        """Of the first `count` places."""
        long = usual = self._all.total / self._all.count
        found = []
        for late, ever in zip(self._late[:count], self._ever[:count], strict=True):
            long = ever.value((long + usual) / 2, self._WEIGHT)
            found.append(late.value(long, self._LONG))
        return found + [found[-1] if found else usual] * (count - len(found))

    def alive(self, count: int) -> list[float]:
        """The probability that at least 1, 2, … `count` proposals hold."""
        return alive(self.rates(count), count)


class Streams:
    """What lookahead streams' proposals are worth beside the main stream's, which would have proposed at the same
    places: by stream, as a factor on the odds of those. (What is easy for one is easy for all: a stream whose proposals
    hold with 0.7 where the main one's do with 0.85 holds with 0.98 where that one does with 0.99.)

    main   the main stream's
    share  how often a proposal of theirs holds ÷ one of the main stream's, as believed before anything was seen

    >>> seen = Streams(Acceptance(0.8), 2, share=1.0)
    >>> for accepted in [3, 3, 1, 0] * 60:
    ...     seen.saw(3, 3, accepted)  # windows of one pass
    >>> [round(share, 1) for share in alive(seen.rates(3, 5), 5)]  # the next pass begins with the main stream again
    [0.7, 0.5, 0.5, 0.4, 0.2]
    """

    _KEEP = 0.99  # longer than of a text: it is the draft's, more than the text's
    _WEIGHT = 4.0

    def __init__(self, main: Acceptance, streams: int, share: float) -> None:
        self._main, usual = main, main.rate(0)
        self._held = [self._WEIGHT * share * usual] * streams
        self._usual = [self._WEIGHT * usual] * streams  # as the main stream would have
        self._tried = [self._WEIGHT] * streams

    def _stream(self, place: int, first: int) -> int:
        """Which one proposed at that place, where the window's first pass has made so many proposals; 0: the main one.

        A first pass that makes fewer than it could makes those of the first streams."""
        return place if place < first else (place - first) % (1 + len(self._held))

    def saw(self, first: int, length: int, accepted: int, beyond: float | None = None) -> None:
        """A window of `length` proposals was verified, of which the first pass made so many. beyond: as in
        `Acceptance`."""
        for place, held in enumerate(outcomes(length, accepted, beyond)):
            stream = self._stream(place, first) - 1
            if stream < 0:
                self._main.counted(place, held)
            else:
                self._counted(stream, 1, held, self._main.rate(place))
        self._main.faded(length)

    def _counted(self, stream: int, count: float, held: float, usual: float) -> None:
        """So many of a stream's proposals, what share of them held, and would have of the main stream's."""
        keep = self._KEEP**count
        self._held[stream] = keep * self._held[stream] + count * held
        self._usual[stream] = keep * self._usual[stream] + count * usual
        self._tried[stream] = keep * self._tried[stream] + count

    def checked(self, passes: int, held: int) -> None:
        """So many passes of a draft that checks its streams found so many of their proposals to be what the main stream
        says itself: as often as that they hold where it does."""
        share = _agreement(min(max(0.0, held / (passes * len(self._held))), 1.0), len(self._held))
        usual = self._main.rate(0)
        for stream in range(len(self._held)):
            self._counted(stream, passes * share**stream, share * usual, usual)

    def agreed(self) -> float:
        """How many of their proposals a pass that checks them is expected to find to be what the main stream says: they
        hold where that does as often as that.

        >>> seen = Streams(Acceptance(0.8), 2, share=1.0)
        >>> for _ in range(200):
        ...     seen.checked(passes=2, held=3)
        >>> round(seen.agreed(), 1)
        1.5
        """
        shares = [min(1.0, held / usual) for held, usual in zip(self._held, self._usual, strict=True)]
        return sum(alive(shares, len(shares)))

    def rates(self, first: int, count: int) -> list[float]:
        """How often each of `count` proposals holds, given that those before it did."""
        found = zip(self._held, self._usual, self._tried, strict=True)
        factors = [1.0, *(_odds(held / tried) / _odds(usual / tried) for held, usual, tried in found)]
        return [
            likelier(rate, factors[self._stream(place, first)]) for place, rate in enumerate(self._main.rates(count))
        ]


class Confidence:
    """What the draft's own probability of a proposal is worth: how often those hold of which it was as sure.

    >>> seen = Confidence()
    >>> for _ in range(100):
    ...     seen.saw([0.95, 0.4], accepted=1)
    >>> seen.worth(0.95) > 0.9 > 0.2 > seen.worth(0.4)
    True
    """

    _BOUNDS = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99)
    _WEIGHT = 3.0

    def __init__(self) -> None:
        edges = (0.0, *self._BOUNDS, 1.0)
        self._tried = [self._WEIGHT] * (len(self._BOUNDS) + 1)
        self._held = [self._WEIGHT * (low + high) / 2 for low, high in pairwise(edges)]

    def saw(self, confidences: Sequence[float], accepted: int) -> None:
        """Of a window whose first `accepted` proposals held: those count that were reached."""
        for place, sure in enumerate(confidences[: accepted + 1]):
            at = self._bin(sure)
            self._held[at] = KEEP * self._held[at] + (place < accepted)
            self._tried[at] = KEEP * self._tried[at] + 1

    def worth(self, sure: float) -> float:
        at = self._bin(sure)
        return self._held[at] / self._tried[at]

    @property
    def now(self) -> Callable[[float], float]:
        """`worth`, whatever is seen from now on."""
        shares = [held / tried for held, tried in zip(self._held, self._tried, strict=True)]
        return lambda sure: shares[self._bin(sure)]

    @classmethod
    def _bin(cls, sure: float) -> int:
        return bisect_left(cls._BOUNDS, sure)


class Brought:
    """Tokens that a pass brings a branch, on average, which checks the streams of the one before.

    held, passes  as if so many streams' proposals had held in so many

    >>> brought = Brought()
    >>> for _ in range(3):
    ...     brought.saw(4, 3)
    >>> round(brought.value, 2)
    1.75
    """

    def __init__(self, held: float = 0.0, passes: float = 0.0) -> None:
        self._held, self._passes = held, passes

    def saw(self, passes: int, held: float) -> None:
        """So many proposals held, in so many passes."""
        self._held, self._passes = KEEP * self._held + held, KEEP * self._passes + passes

    @property
    def value(self) -> float:
        """One at least, also where nothing was seen."""
        return 1.0 + self._held / self._passes if self._passes else 1.0
