"""What a draft gets done beside a verification, pass by pass: the arithmetic of `rounds` with set times. Pure.

A pass that has begun is finished, whatever becomes known meanwhile: one over many branches that begins shortly before
the outcome is known keeps the target waiting, for longer than one over a single branch that begins when it is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import erfc, exp, pi, sqrt
from typing import NamedTuple

from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.passes import Needed

_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Branches of a pass that are looked at, beside all of them."""
_SURE = 3.0  # standard deviations: what is further off is so each time


def worthwhile(
    room: float, need: float, most: int, takes: Callable[[int], float], found: Callable[[int], float], single: float
) -> int:
    """Over how many of the first branches a pass is worth beginning, so long before the outcome is known; 0: over none.

    Each pass saves one over a single branch after the outcome, if that is among them and would be waited for, and
    costs what it takes longer than there is room for. Where there is room for some passes over many branches, or for
    more over fewer, that counts which saves most until then. Nobody waits for what only makes windows longer.

    need    passes that the first branch needs, at least one
    most    branches there are
    takes   a pass over so many
    found   how likely the outcome is among the first so many, and would be waited for
    single  a pass over one, once the outcome is known

    >>> def takes(count): return 10.0 + count
    >>> def found(count): return 1 - 0.5 ** count
    >>> [worthwhile(room, 1, 16, takes, found, 11.0) for room in (30, 20, 15, 10, 5, 0)]
    [16, 8, 4, 4, 4, 0]
    >>> [worthwhile(room, 2, 16, takes, found, 11.0) for room in (60, 30, 20)]
    [16, 4, 4]
    >>> [worthwhile(room, 2, 16, takes, lambda count: 0.0, 11.0) for room in (60, 30, 20, 10)]
    [16, 16, 8, 0]
    """
    if need * takes(most) <= room:
        return most
    best, count = 0.0, 0
    for n in (*(n for n in _COUNTS if n < most), most):
        one = takes(n)
        if one > room + single:  # and wider ones take no less
            break
        passes = min(need, room / one) if one <= room else 1.0
        worth = found(n) * single * passes - max(0.0, one - room)
        if worth > best or (worth == best and one <= room):
            best, count = worth, n
    return count


def overdue(late: float, spread: float) -> tuple[float, float]:
    """How likely something ends after something else, and for how long they wait that wait for it, on average. late: by
    how much it usually does; spread: of that, a standard deviation.

    >>> overdue(4.0, 0.0), overdue(-4.0, 0.0)
    ((1.0, 4.0), (0.0, 0.0))
    >>> [round(found, 2) for found in overdue(0.0, 10.0)], [round(found, 2) for found in overdue(-30.0, 10.0)]
    ([0.5, 3.99], [0.0, 0.0])
    """
    if abs(late) >= _SURE * spread:
        return (1.0, late) if late > 0 else (0.0, 0.0)
    off = late / spread
    often = 0.5 * erfc(-off / sqrt(2))
    return often, late * often + spread * exp(-off * off / 2) / sqrt(2 * pi)


def lasting(takes: float, slower: float, room: float) -> float:
    """What takes so long while the target is busy, which is so many times as long as alone, and the target has so much
    left to do.

    >>> lasting(15.0, 1.5, 20.0), lasting(15.0, 1.5, 9.0), lasting(15.0, 1.5, 0.0)
    (15.0, 13.0, 10.0)
    """
    return takes if takes <= room else room + (takes - room) / slower


class Known(NamedTuple):
    """The outcome that the draft expects before it has seen the window's rows.

    passes         how many its root has had once the first one has ended: one, or less where there is not always one
    place          how many of the draft's roots come before it
    cut            how often something was cut off the window that it follows
    whole, enough  of its window: as of `Work`
    """

    passes: float
    place: int
    cut: float
    whole: Needed
    enough: Needed


class Group(NamedTuple):
    """So many roots whose windows have had as many passes when the last one begins; ended: once it has ended; known: of
    the outcome that the draft expects."""

    roots: int
    passes: float
    ended: float
    known: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """groups   as they are served, mostly the likeliest first
    late     for how long the last pass goes on after the outcome is known; negative: so long before that it has ended
    carried  what a pass takes besides that follows then
    """

    groups: tuple[Group, ...]
    late: float
    carried: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to do.

    own, tapped    roots that the draft names itself, and those that the tap names
    whole          passes until a window is whole; enough: until nobody waits for more of it
    one            a pass while the target is busy, by what it has to do, in branches that have had several
    slower         that ÷ a pass alone, likewise
    first, second  what a branch's first and second pass have to do, the same way
    found          the share of outcomes among the first so many roots
    single         a pass over one branch, as long as it takes beside the target; None: nobody waits for one, and all
                   are worth beginning
    width          of a pass; None: it takes all branches
    known          one of the own roots
    """

    own: int
    tapped: int
    whole: Needed
    enough: Needed
    one: Curve
    slower: Curve
    first: float
    second: float
    found: Callable[[float], float]
    single: float | None
    width: int | None = None
    known: Known | None = None

    def until(self, verify: float, begins: float, spoken: float, carried: float = 0.0) -> Prepared:
        """Done when the outcome is known, at `verify`.

        begins   when the first pass can begin
        spoken   when the tap has
        carried  what the first pass takes besides

        >>> three = Needed((1.0, 1.0, 1.0))
        >>> one, same = Curve.of({1: 10.0, 9: 18.0}), Curve.of({1: 1.0})
        >>> work = Work(8, 0, three, three, one, same, 1.0, 1.0, lambda count: 1 - 0.5**count, 10.0)
        >>> work.until(60, begins=10, spoken=0).groups
        (Group(roots=4, passes=2, ended=3, known=False), Group(roots=4, passes=2, ended=2, known=False))
        """
        now, joins, groups = begins, self.tapped, self._named()
        while now < verify:
            if joins and now >= spoken:
                groups, joins = [*groups, Group(joins, 0, 0)], 0
            before = [one._replace(passes=one.ended) for one in groups]
            unfinished = self._unfinished(before)
            loads = [(one.roots, self._load(one)) for _, one in unfinished]
            batch = self._worthwhile(unfinished, loads, verify - now) if loads else 0
            if batch:
                load = _load(loads, batch)
                slower = self.slower.at(load)
                takes = self.one.at(load) + carried * slower
                now, carried = now + lasting(takes, slower, verify - now), 0.0
                groups = self._served(before, batch)
            elif joins and spoken < verify:
                now = spoken
            else:
                break
        return Prepared(tuple(groups), now - verify, carried)

    def _named(self) -> list[Group]:
        """The own roots, as the first pass begins."""
        if self.known is None:
            groups = [Group(self.own, 0, 0)]
        else:
            passes, before = self.known.passes, self.known.place
            known = Group(1, 0, passes, known=True)
            groups = [Group(before, 0, 0), known, Group(self.own - 1 - before, 0, 0)]
        return [one for one in groups if one.roots]

    def whole_of(self, one: Group) -> Needed:
        return self.known.whole if one.known and self.known else self.whole

    def enough_of(self, one: Group) -> Needed:
        return self.known.enough if one.known and self.known else self.enough

    def _done(self, one: Group) -> bool:
        return self.whole_of(one).done(one.passes)

    def _unfinished(self, groups: Sequence[Group]) -> list[tuple[int, Group]]:
        """Those whose windows are not whole, and at which place each begins."""
        found, place = [], 0
        for one in groups:
            if not self._done(one):
                found.append((place, one))
            place += one.roots
        return found

    def _worthwhile(
        self, unfinished: Sequence[tuple[int, Group]], loads: Sequence[tuple[int, float]], room: float
    ) -> int:
        """Over how many of these branches a pass is worth beginning, see `worthwhile`: those of the first group are
        served to their end."""
        count = sum(roots for roots, _ in loads)
        count = count if self.width is None else min(count, self.width)
        if self.single is None:
            return count
        first = unfinished[0][1]
        need = self.whole_of(first).more(first.passes)
        return worthwhile(
            room, need, count, lambda count: self.one.at(_load(loads, count)),
            partial(self._found, unfinished), self.single,
        )  # fmt: skip

    def _found(self, unfinished: Sequence[tuple[int, Group]], count: int) -> float:
        """How likely the outcome is among the first so many of these roots, and has to be waited for."""
        share = 0.0
        for place, one in unfinished:
            here = min(one.roots, count)
            if here and (waits := self.enough_of(one).after(one.passes)):
                share += waits * (self.found(place + here) - (self.found(place) if place else 0.0))
            count -= here
        return share

    def _load(self, one: Group) -> float:
        """Of a branch, on average over those whose windows are whole and those that are not."""
        each = self.first if one.passes == 0 else self.second if one.passes <= 1 else 1.0
        return each * self.whole_of(one).after(one.passes)

    def _served(self, groups: Sequence[Group], count: int) -> list[Group]:
        """Once a pass over so many of those has ended."""
        found = []
        for one in groups:
            here = 0 if self._done(one) else min(count, one.roots)
            if here:
                found.append(one._replace(roots=here, ended=one.passes + 1))
            if one.roots > here:
                found.append(one._replace(roots=one.roots - here, ended=one.passes))
            count -= here
        return found


def _load(loads: Sequence[tuple[int, float]], count: int) -> float:
    """What a pass has to do over the first so many of these branches."""
    load = 0.0
    for roots, each in loads:
        load += min(count, roots) * each
        count -= roots
        if count <= 0:
            break
    return load
