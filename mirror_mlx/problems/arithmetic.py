"""Arithmetic as one writes it down: the sum, the way to its result, the result."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ATOMS = re.compile(r"\w+|[-+*/]")
LARGEST = 9999


class UnsuitableError(Exception):
    """These numbers make no fit problem: a part or a result is negative, fractional, too small or too large."""


@dataclass(frozen=True)
class Sum:
    """A chain of additions and subtractions, or of products and quotients, from left to right.

    >>> Sum.parse("a*b", {"a": 7, "b": 34}).written()
    '7*34 = 7*30 + 7*4 = 210 + 28 = 238'
    """

    first: int
    rest: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, text: str, values: Mapping[str, int]) -> "Sum":
        """Read `a + b - 3` or `a*b/c`, names standing for `values`."""
        atoms = _ATOMS.findall(text)
        numbers = [values[atom] if atom in values else int(atom) for atom in atoms[::2]]
        return cls(numbers[0], tuple(zip(atoms[1::2], numbers[1:], strict=True)))

    @property
    def result(self) -> int:
        """Raises UnsuitableError where a step leaves the whole numbers from 0 to 9,999."""
        value = self.first
        for sign, number in self.rest:
            value = _apply(value, sign, number)
        return value

    def written(self, mark: str = "") -> str:
        """The chain, its steps and its result, the result with `mark` before it."""
        value, lines = self.first, [self._shown(self.first, self.rest)]
        for i, (sign, number) in enumerate(self.rest):
            later = self.rest[i + 1 :]
            after = _apply(value, sign, number)
            if not later:
                lines += working(value, sign, number)
            lines.append(self._shown(after, later))
            value = after
        return " = ".join([*lines[:-1], mark + lines[-1]])

    @staticmethod
    def _shown(first: int, rest: tuple[tuple[str, int], ...]) -> str:
        return str(first) + "".join(f" {s} {n}" if s in "+-" else f"{s}{n}" for s, n in rest)


def working(a: int, sign: str, b: int) -> list[str]:
    """The lines between `a sign b` and its result, for what is not done in the head.

    >>> working(14, "*", 12), working(358, "+", 467), working(27, "+", 45)
    (['12*10 + 12*4', '120 + 48'], ['358 + 400 + 67', '758 + 67'], [])
    """
    if sign == "*":
        if a > 12 and b <= 12:
            a, b = b, a
        tens, ones = b // 10 * 10, b % 10
        if b > 12 and ones and a > 1:
            return [f"{a}*{tens} + {a}*{ones}", f"{a * tens} + {a * ones}"]
    if sign in "+-" and a >= 100 and b >= 100 and b % 100:
        hundreds = b // 100 * 100
        near = _apply(a, sign, hundreds)
        return [f"{a} {sign} {hundreds} {sign} {b % 100}", f"{near} {sign} {b % 100}"]
    return []


def _apply(a: int, sign: str, b: int) -> int:
    if sign == "/":
        if b == 0 or a % b:
            raise UnsuitableError
        return a // b
    value = a + b if sign == "+" else a - b if sign == "-" else a * b
    if not 0 <= value <= 9999:
        raise UnsuitableError
    return value
