"""Problems about people, animals and their ages."""

from mirror_mlx.problems.template import Template

PEOPLE = (
    Template(
        "a 12-60, b 2-30",
        (
            "There are {a} {people} in a {room}. {b} of them are girls. How many are boys?",
            "A {room} has {a} {people}. {b} of them are ill today. How many are there today?",
            "Of {a} {people}, {b} come by bus and the others walk. How many walk?",
        ),
        ("[c: a - b].", "The others are [c: a - b]."),
        ("b", "And if it were {b}?"),
    ),
    Template(
        "c 2-15, f 2-5, a = c*f",
        (
            "There are {a} {people} in a {room}. {f:part} of them walk to school, and the others take the bus. "
            "How many take the bus?",
            "A {room} has {a} {people}. {f:part} of them wear glasses. How many do not wear glasses?",
        ),
        ("{f:part} of {a} is [c: a/f].\nThe others are [d: a - c].",),
        ("c", "And if there were {a} of them?"),
    ),
    Template(
        "a 2-9, b 4-30, c 2-20",
        (
            "A {room} has {a} groups of {b} {people}. {c} more {people} join. How many {people} are there now?",
            "{a} {vehicles} bring {b} {people} each, and {c} more {people} come on foot. How many {people} come?",
        ),
        ("At first there are [d: a*b].\nWith the others there are [e: d + c] {people}.",),
        ("c", "And if {c} more came?"),
    ),
    Template(
        "a 10-60, b 2-20, c 2-20",
        (
            "A {vehicle} has {a} people in it. At the first stop {b} get off and {c} get on. "
            "How many people are in the {vehicle} now?",
            "There are {a} {people} in a room. {b} leave and {c} come in. How many are in the room now?",
        ),
        ("After {b} leave there are [d: a - b].\nAfter {c} come there are [e: d + c].",),
        ("c", "And if {c} came?"),
    ),
    Template(
        "a 3-20, b 2-12, k 2-4",
        (
            "{name} is {a} years old. {other} is {b} years older. How old is {other}?",
            "{name} is {a}, and {his} {kin} is {b} years older. How old is the {kin}?",
        ),
        ("{a} and {b} years make [c: a + b] years.", "[c: a + b] years."),
        ("b", "And if it were {b} years?"),
    ),
    Template(
        "a 3-12, k 2-4, b 2-9",
        (
            "{name} is {b} years older than {other}, who is {k:times} as old as {his} dog. The dog is {a}. "
            "How old is {name}?",
            "A dog is {a} years old. {other} is {k:times} as old as the dog, and {name} is {b} years older than "
            "{other}. How old is {name}?",
        ),
        ("{other} is [c: a*k] years old.\n{name} is [d: c + b] years old.",),
        ("a", "And if the dog were {a}?"),
    ),
    Template(
        "a 5-40, b 2-15",
        (
            "{name} is {a} years old. How old will {he} be in {b} years?",
            "{name} is {a} now. How old is {he} in {b} years?",
        ),
        ("In {b} years {he} is [c: a + b].", "{He} will be [c: a + b]."),
        ("b", "And in {b} years?"),
    ),
    Template(
        "a 2-9, b 2-9, c 2-9",
        (
            "A farm has {a} cows and {b} chickens. How many legs do they have?",
            "There are {a} cows and {b} chickens in a yard. How many legs is that?",
        ),
        ("The cows have [d: a*4] legs.\nThe chickens have [e: b*2] legs.\nTogether that is [f: d + e] legs.",),
        ("a", "And with {a} cows?"),
    ),
    Template(
        "a 5-50, b 2-40, c 2-40",
        (
            "A farmer has {a} {animals}. {He} buys {b} and sells {c}. How many {animals} does {he} have now?",
            "A farm has {a} {animals} and {b} {animals2}. {c} of them are sold. How many are left?",
        ),
        ("First there are [d: a + b].\nThen there are [e: d - c].",),
        ("c", "And if {c} were sold?"),
    ),
)
