"""The people and things that word problems are about."""

from dataclasses import dataclass
from random import Random

WOMEN = (
    "Anna", "Beth", "Carla", "Chloe", "Diana", "Ella", "Emma", "Fatima", "Grace", "Hannah", "Ines", "Jenna", "Julia",
    "Kate", "Laura", "Lena", "Lily", "Lucy", "Maria", "Maya", "Mei", "Mia", "Nina", "Nora", "Olivia", "Priya", "Rosa",
    "Ruth", "Sara", "Sofia", "Tina", "Zoe",
)  # fmt: skip
MEN = (
    "Adam", "Ali", "Ben", "Carlos", "Daniel", "David", "Erik", "Felix", "George", "Henry", "Hugo", "Ivan", "Jack",
    "James", "John", "Karl", "Leo", "Liam", "Luis", "Mark", "Max", "Nick", "Noah", "Omar", "Oscar", "Paul", "Peter",
    "Ravi", "Sam", "Theo", "Tom", "Will",
)  # fmt: skip
WORDS = {
    "things": "apples oranges pears cookies candies stickers marbles pencils stamps shells cards coins buttons beads "
    "balloons toys books crayons erasers eggs lemons peaches plums muffins badges photos stones flowers",
    "box": "box bag basket jar packet tray crate",
    "room": "class school club camp choir team",
    "people": "children students players members visitors pupils",
    "animals": "cows sheep goats chickens ducks horses rabbits pigs",
    "item": "shirt hat book toy cup lamp plate scarf ball pen puzzle game plant mug",
    "food": "sandwich pizza cake pie juice salad burger soup",
    "plants": "tomato_plants trees roses bushes carrots cabbages apple_trees bean_plants",
    "vehicle": "car bus train truck van",
    "work": "reading painting running cleaning cooking studying practising gardening",
    "kin": "sister brother friend cousin neighbor teacher",
    "maker": "baker shop bakery store factory market",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
}
PLURALS = {
    "scarf": "scarves",
    "box": "boxes",
    "sandwich": "sandwiches",
    "bus": "buses",
    "class": "classes",
    "juice": "juices",
}


@dataclass(frozen=True)
class Person:
    """A name and its pronouns."""

    name: str
    he: str
    his: str
    him: str


def person(random: Random, *besides: str) -> Person:
    """Somebody whose name is not among `besides`."""
    while True:
        if random.random() < 0.5:
            somebody = Person(random.choice(WOMEN), "she", "her", "her")
        else:
            somebody = Person(random.choice(MEN), "he", "his", "him")
        if somebody.name not in besides:
            return somebody


def words(random: Random) -> dict[str, str]:
    """A choice of words for one problem, by the names that templates use; `things2` and `item2` are second ones."""
    one = person(random)
    two = person(random, one.name)
    chosen = {"name": one.name, "he": one.he, "his": one.his, "him": one.him}
    chosen |= {"other": two.name, "she": two.he, "her": two.his, "hers": two.him}
    for kind, line in WORDS.items():
        first, second = random.sample(line.split(), 2)
        chosen |= {kind: first.replace("_", " "), kind + "2": second.replace("_", " ")}
    for many in ("boxes", "items", "items2", "foods", "vehicles"):
        one_of = {"boxes": "box", "items2": "item2"}.get(many, many.removesuffix("s"))
        chosen[many] = plural(chosen[one_of])
    return chosen | {name.capitalize(): word.capitalize() for name, word in chosen.items()}


def plural(word: str) -> str:
    """
    >>> plural("tray"), plural("box")
    ('trays', 'boxes')
    """
    return PLURALS.get(word, word + "s")
