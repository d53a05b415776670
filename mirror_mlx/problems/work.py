"""Problems about time: work, ways and reading."""

from mirror_mlx.problems.template import Template

TIME = (
    Template(
        "a 2-60, b 2-9",
        (
            "{name} reads {a} pages a day. How many pages does {he} read in {b} days?",
            "{name} needs {a} minutes for {work}. {He} does it on {b} days. How many minutes is that?",
            "{name} makes {a} {things} an hour. How many does {he} make in {b} hours?",
            "A {vehicle} travels {a} miles in one hour. How far does it travel in {b} hours?",
        ),
        ("{b} times {a} is [c: b*a].", "That is [c: a*b]."),
        ("b", "And for {b}?"),
    ),
    Template(
        "a 10-60, b 10-60",
        (
            "{name} reads {a} pages a day from Monday to Friday and {b} pages on each day of the weekend. "
            "How many pages does {he} read in a week?",
            "{name} works {a} minutes on each of the 5 school days and {b} minutes on each of the 2 days of the "
            "weekend. How many minutes does {he} work in a week?",
        ),
        ("From Monday to Friday that is [c: 5*a].\nOn the weekend it is [d: 2*b].\nIn a week it is [e: c + d].",),
        ("b", "And if it were {b} on the weekend?"),
    ),
    Template(
        "a 2-12, b 2-6, c 2-12, w 2-6",
        (
            "{name} runs {a} miles on each of {b} days and {c} miles on {day}. How many miles does {he} run "
            "in {w} weeks?",
            "{name} practises {a} hours on each of {b} days of the week and {c} hours on {day}. "
            "How many hours is that in {w} weeks?",
        ),
        ("On {b} days that is [d: a*b].\nIn a week it is [e: d + c].\nIn {w} weeks it is [f: e*w].",),
        ("w", "And in {w} weeks?"),
    ),
    Template(
        "a 20-80, b 2-9, c 1-4",
        (
            "A {vehicle} travels {a} miles in one hour. How far does it travel in {b} hours, if it stops for {c} of "
            "them?",
            "{name} drives {a} miles an hour. {He} is on the road for {b} hours but rests for {c} of them. "
            "How far does {he} get?",
        ),
        ("It moves for [d: b - c] hours.\nIn that time it goes [e: d*a] miles.",),
        ("a", "And at {a} miles an hour?"),
    ),
    Template(
        "b 2-9, c 8-50, a = b*c",
        (
            "A book has {a} pages. {name} reads {b} pages an hour. How many hours does {he} need?",
            "A {vehicle} has to go {a} miles and makes {b} miles a minute. How many minutes does it need?",
        ),
        ("It takes [d: a/b].", "That takes [d: a/b]."),
    ),
    Template(
        "c 2-12, e 2-12, b 10-90, d = c*e, a = d + b",
        (
            "A book has {a} pages. {name} has read {b} pages and wants to finish it in {c} days. "
            "How many pages a day does {he} have to read?",
            "{name} has to make {a} {things}. {He} has made {b} and makes {c} more every day. "
            "How many days does {he} still need?",
        ),
        ("There are [d: a - b] left.\n{d} by {c} is [e: d/c].",),
    ),
    Template(
        "a 2-5, b 10-55/5",
        (
            "{name} spends {a} hours and {b} minutes on {work}. How many minutes is that?",
            "How many minutes are {a} hours and {b} minutes?",
        ),
        ("{a} hours are [c: a*60] minutes.\nIn all that is [d: c + b] minutes.",),
        ("a", "And {a} hours?"),
    ),
    Template(
        "a 10-60, b 5-50, c 5-50",
        (
            "{name} spends {a} minutes on {work}, {b} minutes on {work2} and {c} minutes on homework. "
            "How many minutes is that in all?",
            "{name} walks {a} minutes to the shop, stays {b} minutes and walks {c} minutes home. "
            "How many minutes does it take?",
        ),
        ("The first two take [d: a + b] minutes.\nIn all it is [e: d + c] minutes.",),
        ("c", "And if the last took {c} minutes?"),
    ),
    Template(
        "a 2-9, b 2-6",
        (
            "{name} practises {a} hours every day. How many hours is that in {b} weeks?",
            "A {maker} opens {a} hours on each day of the week. How many hours is that in {b} weeks?",
        ),
        ("In a week that is [c: a*7] hours.\nIn {b} weeks it is [d: c*b] hours.",),
        ("b", "And in {b} weeks?"),
    ),
)
