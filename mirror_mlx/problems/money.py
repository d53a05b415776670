"""Problems about prices, wages and savings."""

from mirror_mlx.problems.template import Template

MONEY = (
    Template(
        "a 2-9, b 2-40",
        (
            "{name} buys {a} {items} for ${b} each. How much does {he} pay?",
            "A {item} costs ${b}. How much do {a} {items} cost?",
            "{name} sells {a} {things} for ${b} each. How much money does {he} make?",
        ),
        ("{a} times ${b} is [$c: a*b].", "That is [$c: a*b]."),
        ("a", "And {a} of them?"),
    ),
    Template(
        "a 2-6, b 3-25, c 5-40",
        (
            "{name} buys {a} {items} for ${b} each and a {item2} for ${c}. How much does {he} pay?",
            "A {item} costs ${b} and a {item2} costs ${c}. How much do {a} {items} and one {item2} cost?",
        ),
        ("The {items} cost [$d: a*b].\nIn all that is [$e: d + c].",),
        ("a", "And with {a} {items}?"),
    ),
    Template(
        "a 2-6, b 3-25, c 5-40, p 50-100/50",
        (
            "{name} buys {a} {items} for ${b} each and a {item2} for ${c}. {He} pays with a ${p} bill. "
            "How much change does {he} get?",
            "{a} {items} at ${b} each and one {item2} at ${c}: {name} pays with ${p}. How much does {he} get back?",
        ),
        ("The {items} cost [$d: a*b].\nWith the {item2} that is [$e: d + c].\n{He} gets [$f: p - e] back.",),
    ),
    Template(
        "a 2-6, b 3-25, c 2-6, d 3-25",
        (
            "{name} buys {a} {items} for ${b} each and {c} {items2} for ${d} each. How much does {he} spend?",
            "A {item} costs ${b} and a {item2} costs ${d}. How much are {a} {items} and {c} {items2}?",
        ),
        ("The {items} cost [$e: a*b].\nThe {items2} cost [$f: c*d].\nTogether that is [$g: e + f].",),
        ("c", "And with {c} {items2}?"),
    ),
    Template(
        "p 20-100/10, a 2-6, b 2-15",
        (
            "{name} has ${p}. {He} buys {a} {items} for ${b} each. How much money does {he} have left?",
            "{name} takes ${p} to the {maker} and buys {a} {foods} for ${b} each. How much is left?",
        ),
        ("{He} spends [$c: a*b].\n{He} has [$d: p - c] left.",),
        ("p", "And if {he} had ${p}?"),
    ),
    Template(
        "a 5-25, b 2-9",
        (
            "{name} earns ${a} an hour. How much does {he} earn in {b} hours?",
            "{name} gets ${a} for each {item} {he} makes. How much does {he} get for {b} {items}?",
        ),
        ("For {b} that is [$c: a*b].", "{He} gets [$c: a*b]."),
        ("b", "And for {b}?"),
    ),
    Template(
        "a 5-25, b 2-9, c 2-6",
        (
            "{name} earns ${a} an hour and works {b} hours a day. How much does {he} earn in {c} days?",
            "{name} works {b} hours a day for {c} days and earns ${a} an hour. How much does {he} earn?",
        ),
        (
            "In a day {he} earns [$d: a*b].\nIn {c} days {he} earns [$e: d*c].",
            "{He} works [d: b*c] hours.\nFor that {he} earns [$e: d*a].",
        ),
        ("c", "And in {c} days?"),
    ),
    Template(
        "a 8-20, b 5-8, c 12-30, d 2-4",
        (
            "{name} earns ${a} an hour for the first {b} hours and ${c} for each hour after that. {He} works {d} hours "
            "more than {b}. How much does {he} earn?",
            "A worker earns ${a} an hour for {b} hours, and then ${c} an hour for {d} more hours. "
            "How much is that in all?",
        ),
        ("The first {b} hours bring [$e: a*b].\nThe other {d} hours bring [$f: c*d].\nIn all that is [$g: e + f].",),
        ("d", "And with {d} more hours?"),
    ),
    Template(
        "a 2-15, d 2-15, h 10-90/5, c = a*d, g = c + h",
        (
            "{name} saves ${a} a week. {He} wants to buy a bicycle that costs ${g}, and {he} already has ${h}. "
            "How many weeks does {he} have to save?",
            "A bicycle costs ${g}. {name} has ${h} and saves ${a} every week. How many weeks does {he} need?",
        ),
        ("{He} still needs [$c: g - h].\nThat takes [d: c/a] weeks.",),
    ),
    Template(
        "a 5-60, b 5-60, c 5-60",
        (
            "{name} spends ${a} on food, ${b} on books and ${c} on clothes. How much does {he} spend?",
            "{name} has ${a}, {other} has ${b} and their friend has ${c}. How much do they have together?",
        ),
        ("The first two make [$d: a + b].\nIn all it is [$e: d + c].",),
        ("c", "And if the last were ${c}?"),
    ),
    Template(
        "a 10-90/10, r 10-50/10",
        (
            "A {item} costs ${a}. Today it is {r}% cheaper. What does it cost today?",
            "{name} buys a {item} for ${a} with a discount of {r}%. How much does {he} pay?",
        ),
        ("The discount is [$c: a*r/100].\nThe price is [$d: a - c].",),
    ),
    Template(
        "c 2-15, b 2-9, a = b*c",
        (
            "{b} {items} cost ${a}. How much does one {item} cost?",
            "{name} and {his} friends are {b} people. They share a bill of ${a} equally. How much does each pay?",
        ),
        ("One is [$c: a/b].", "That is [$c: a/b] for each."),
    ),
    Template(
        "d 2-12, b 3-6, c 2-9, a = b*d",
        (
            "A farmer has {a} eggs. {He} packs them in cartons of {b} and sells each carton for ${c}. "
            "How much does {he} earn?",
            "{name} packs {a} {things} in {boxes} of {b} and sells each {box} for ${c}. How much does {he} get?",
        ),
        ("That makes [d: a/b].\n{He} gets [$e: d*c].",),
        ("c", "And if the price were ${c}?"),
    ),
    Template(
        "a 5-30, k 2-4, c 2-9",
        (
            "A {maker} sells {a} loaves in the morning and {k:times} as many in the afternoon. Each loaf costs ${c}. "
            "How much money does it make in a day?",
            "{name} sells {a} {things} on {day} and {k:times} as many on {day2}, for ${c} each. "
            "How much money does {he} make?",
        ),
        ("The second number is [d: a*k].\nIn all that is [e: a + d].\nThe money is [$f: e*c].",),
        ("c", "And if the price were ${c}?"),
    ),
)
