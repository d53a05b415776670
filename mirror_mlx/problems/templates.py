"""The templates about things, people and time; those about money and comparison are in `more_templates`."""

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
