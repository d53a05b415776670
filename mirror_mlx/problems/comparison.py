"""Problems that compare: more and fewer, shares, areas, averages."""

from mirror_mlx.problems.template import Template

COMPARISON = (
    Template(
        "a 10-90, b 2-40",
        (
            "{name} has {a} {things}. {other} has {b} fewer. How many {things} does {other} have?",
            "{name} has {a} {things}, {b} more than {other}. How many does {other} have?",
        ),
        ("{other} has [c: a - b] {things}.",),
        ("b", "And if the difference were {b}?"),
    ),
    Template(
        "a 10-60, b 2-30",
        (
            "{name} has {a} {things}. {other} has {b} more than {name}. How many {things} do they have together?",
            "{name} picks {a} {things} and {other} picks {b} more than that. How many do they pick together?",
        ),
        ("{other} has [c: a + b].\nTogether they have [d: a + c].",),
        ("b", "And if it were {b} more?"),
    ),
    Template(
        "a 10-99, b 5-90",
        (
            "{name} has {a} {things} and {other} has {b}. How many more does {name} have?",
            "A {item} costs ${a} and a {item2} costs ${b}. How many dollars more is the {item}?",
        ),
        ("The difference is [c: a - b].",),
    ),
    Template(
        "c 2-20, f 2-4, a = c*f",
        (
            "{name} has {a} {things}. {other} has {f:part} as many. How many do they have together?",
            "A {maker} sells {a} {things} on {day} and {f:part} as many on {day2}. How many is that in all?",
        ),
        ("{f:part} of {a} is [c: a/f].\nTogether that is [d: a + c].",),
        ("a", "And if the first number were {a}?"),
    ),
    Template(
        "a 4-40, k 2-3, b 2-20",
        (
            "{name} has {a} {things}. {other} has {b} more than {k:times} as many. How many does {other} have?",
            "{other} has {b} more {things} than {k:times} what {name} has. {name} has {a}. How many has {other}?",
        ),
        ("{k:times} {a} is [c: a*k].\n{other} has [d: c + b] {things}.",),
    ),
    Template(
        "a 20-200/10, p 10-90/10",
        (
            "There are {a} {people}, and {p}% of them are {name}'s friends. How many is that?",
            "A {box} holds {a} {things}. {p}% of them are red. How many are red?",
            "What is {p}% of {a}?",
        ),
        ("{p}% of {a} is [c: a*p/100].",),
    ),
    Template(
        "a 2-20, b 2-20",
        (
            "A rectangle is {a} meters long and {b} meters wide. What is its area in square meters?",
            "A room is {a} feet by {b} feet. How many square feet is that?",
        ),
        ("The area is [c: a*b].",),
        ("b", "And if it were {b} wide?"),
    ),
    Template(
        "a 2-40, b 2-40",
        (
            "A rectangle is {a} meters long and {b} meters wide. How long is the way around it?",
            "A garden is {a} feet by {b} feet. How many feet of fence go around it?",
        ),
        ("One long and one short side are [c: a + b].\nThe way around is [d: 2*c].",),
        ("b", "And if it were {b} wide?"),
    ),
    Template(
        "a 2-30, b 2-30, e 2-30, f = e + e + e, g = f - a, c = g - b",
        (
            "{name} reads {a} pages on Monday, {b} on Tuesday and {c} on Wednesday. How many pages a day is that on "
            "average?",
            "What is the average of {a}, {b} and {c}?",
        ),
        ("The sum is [d: a + b + c].\nThe average is [e: d/3].",),
    ),
    Template(
        "a 2-4, b 250-500/250, c 2-5",
        (
            "A jug holds {a} liters. How many glasses of {b} milliliters can be filled from {c} jugs?",
            "{name} has {c} bottles of {a} liters. How many cups of {b} milliliters is that?",
        ),
        ("In all there are [d: a*c] liters.\nThat is [e: d*1000] milliliters.\nIt makes [f: e/b].",),
    ),
)
