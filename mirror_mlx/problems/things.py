"""Problems about things that are counted, shared, given and lost."""

from mirror_mlx.problems.template import Template

THINGS = (
    Template(
        "a 2-9, b 3-20, c 2-30",
        (
            "{name} has {a} {boxes} with {b} {things} in each. {He} gives {c} {things} to {his} {kin}. "
            "How many {things} does {he} have left?",
            "There are {a} {boxes} of {things} and {b} {things} in each {box}. {name} takes out {c} of them. "
            "How many {things} are left?",
            "{name} buys {a} {boxes} of {things}. Each {box} holds {b} {things}. {He} gives away {c} {things}. "
            "How many {things} are left?",
        ),
        (
            "{a} {boxes} hold [d: a*b] {things}.\n[e: d - c] {things} are left.",
            "There are [d: a*b] {things} in all.\nSo [e: d - c] {things} are left.",
        ),
        ("a", "And if there were {a} {boxes}?"),
    ),
    Template(
        "a 3-60, b 3-60",
        (
            "{name} has {a} {things} and {other} has {b} {things}. How many {things} do they have together?",
            "{name} finds {a} {things}. {other} finds {b}. How many {things} do they find in total?",
            "{name} has {a} {things}. {other} gives {him} {b} more. How many {things} does {name} have now?",
        ),
        ("[c: a + b] {things} in all.", "Together that is [c: a + b] {things}."),
        ("b", "And if the second number were {b}?"),
    ),
    Template(
        "a 20-99, b 3-40, c 3-40",
        (
            "{name} has {a} {things}. {He} loses {b} of them and gives {c} to {other}. How many are left?",
            "A {box} holds {a} {things}. {name} takes {b} {things} and {other} takes {c}. "
            "How many {things} are left in the {box}?",
            "There were {a} {things} on the table. {name} took {b} and {other} took {c}. How many are still there?",
        ),
        (
            "First [d: a - b] {things} are left.\nThen [e: d - c] {things} are left.",
            "Together [d: b + c] {things} are gone.\nSo [e: a - d] {things} are left.",
        ),
        ("c", "And if the last number were {c}?"),
    ),
    Template(
        "b 2-12, c 2-12, a = b*c",
        (
            "{name} shares {a} {things} equally among {b} friends. How many {things} does each friend get?",
            "{name} packs {a} {things} into {boxes} of {b}. How many {boxes} does {he} need?",
            "{a} {things} are put into {b} {boxes}, the same number in each. How many {things} are in a {box}?",
        ),
        ("[d: a/b].", "That is [d: a/b] for each."),
    ),
    Template(
        "d 2-12, c 2-9, b 2-30, e = c*d, a = e + b",
        (
            "{name} has {a} {things}. {He} keeps {b} and shares the others equally among {c} friends. "
            "How many {things} does each friend get?",
            "{name} bakes {a} cookies. {He} keeps {b} and shares the rest equally among {c} {people}. "
            "How many cookies does each of them get?",
        ),
        ("{He} shares [e: a - b].\nEach gets [d: e/c].", "There are [e: a - b] to share.\nThat is [d: e/c] for each."),
    ),
    Template(
        "a 3-20, k 2-5",
        (
            "{name} has {a} {things}. {other} has {k:times} as many. How many {things} does {other} have?",
            "{name} picks {a} {things} and {other} picks {k:times} as many. How many {things} does {other} pick?",
        ),
        ("{other} has [c: a*k] {things}.", "{k:times} {a} is [c: a*k], so {other} has {c} {things}."),
        ("a", "And if {name} had {a}?"),
    ),
    Template(
        "a 3-30, k 2-5",
        (
            "{name} has {a} {things}. {other} has {k:times} as many. How many {things} do they have together?",
            "{name} picks {a} {things} in the morning and {k:times} as many in the afternoon. "
            "How many {things} does {he} pick in all?",
            "A {maker} sells {a} {things} on {day} and {k:times} as many on {day2}. How many {things} is that in all?",
        ),
        (
            "{k:times} {a} is [c: a*k].\nTogether that is [d: a + c] {things}.",
            "The second number is [c: a*k].\nIn all there are [d: a + c] {things}.",
        ),
        ("a", "And if the first number were {a}?"),
    ),
    Template(
        "c 2-20, f 2-5, a = c*f",
        (
            "{name} has {a} {things}. {He} gives {f:part} of them to {other}. How many {things} does {he} have left?",
            "There are {a} {things} in a {box}. {name} takes {f:part} of them. How many {things} are left?",
            "{name} had {a} {things} and lost {f:part} of them. How many {things} does {he} have now?",
        ),
        ("{f:part} of {a} is [c: a/f].\n[d: a - c] {things} are left.",),
        ("c", "And if it were {a} {things}?"),
    ),
    Template(
        "f 2-5, d 2-15, b 3-40, c = d*f, a = c + b",
        (
            "A {maker} has {a} {things}. It sells {b} on {day} and {f:part} of the rest on {day2}. "
            "How many {things} are left?",
            "{name} has {a} {things}. {He} gives {b} to {other} and then {f:part} of the rest to {his} {kin}. "
            "How many {things} does {he} have left?",
        ),
        ("First [c: a - b] {things} are left.\n{f:part} of {c} is [d: c/f].\nSo [e: c - d] {things} are left.",),
    ),
    Template(
        "a 2-12, b 2-12, c 2-9",
        (
            "A garden has {a} rows of {b} {plants}. How many {plants} are there?",
            "{name} plants {a} rows of {b} {plants}. How many {plants} does {he} plant?",
            "{name} puts {b} {things} into each of {a} {boxes}. How many {things} does {he} use?",
        ),
        ("There are [d: a*b].", "That is [d: a*b] in all."),
        ("a", "And if it were {a}?"),
    ),
    Template(
        "a 2-9, b 2-9, c 2-9",
        (
            "A garden has {a} rows of {b} {plants}. Each of them gives {c} {things}. "
            "How many {things} does the garden give?",
            "A house has {a} floors with {b} rooms on each. Every room has {c} windows. How many windows are there?",
            "{name} has {a} {boxes}. In each {box} there are {b} packs of {c} {things}. "
            "How many {things} does {he} have?",
        ),
        (
            "First, there are [d: a*b].\nIn all that makes [e: d*c].",
            "That is [d: a*b] times {c}.\nSo there are [e: d*c].",
        ),
    ),
    Template(
        "a 2-9, b 3-12, c 2-9, d 3-12",
        (
            "{name} has {a} {boxes} with {b} {things} each and {c} {boxes} with {d} {things} each. "
            "How many {things} does {he} have?",
            "{name} buys {a} {boxes} of {b} {things}, and {other} buys {c} {boxes} of {d} {things}. "
            "How many {things} do they buy together?",
        ),
        ("The first are [e: a*b] {things}.\nThe others are [f: c*d] {things}.\nTogether that is [g: e + f] {things}.",),
    ),
    Template(
        "a 2-9, b 10-60, c 3-40, d 2-40",
        (
            "A library has {a} shelves with {b} books each. {c} books are lent and {d} are returned. "
            "How many books are there now?",
            "{name} has {a} {boxes} with {b} {things} in each. {He} loses {c} {things} and finds {d} of them again. "
            "How many {things} does {he} have now?",
        ),
        ("At first there are [e: a*b].\nThen there are [f: e - c].\nIn the end there are [g: f + d].",),
    ),
)
