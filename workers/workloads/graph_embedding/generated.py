"""A generated graph: families over four generations with relations that imply each other."""

import numpy as np

Triple = tuple[str, str, str]
_OPPOSITE = {
    "parent_of": "child_of",
    "grandparent_of": "grandchild_of",
    "aunt_or_uncle_of": "niece_or_nephew_of",
    "married_to": "married_to",
    "sibling_of": "sibling_of",
    "cousin_of": "cousin_of",
}


def _people(
    num_families: int, rng: np.random.Generator
) -> tuple[list[Triple], dict[str, list[str]]]:
    """Marriages, and the children of each person; each couple has one to three children."""
    marriages: list[Triple] = []
    children: dict[str, list[str]] = {}
    for family in range(num_families):
        generation = [f"person_{family}_0"]
        count = 1
        for depth in range(4):
            following = []
            for person in generation:
                spouse = f"person_{family}_{count}"
                count += 1
                marriages.append((person, "married_to", spouse))
                number = int(rng.integers(1, 4)) if depth < 3 else 0
                born = [f"person_{family}_{count + i}" for i in range(number)]
                count += number
                children[person] = children[spouse] = born
                following += born
            generation = following
    return marriages, children


def triples(num_families: int, seed: int) -> list[Triple]:
    """All relations between relatives, in both directions, sorted."""
    marriages, children = _people(num_families, np.random.default_rng([seed, 0xFA41]))
    facts = set(marriages)
    siblings = {c: [s for s in born if s != c] for born in children.values() for c in born}
    for person, born in children.items():
        facts |= {(person, "parent_of", child) for child in born}
        facts |= {(person, "grandparent_of", g) for child in born for g in children.get(child, [])}
        facts |= {
            (person, "aunt_or_uncle_of", n)
            for s in siblings.get(person, [])
            for n in children.get(s, [])
        }
        nephews = {
            child: [n for s in siblings[child] for n in children.get(s, [])] for child in born
        }
        facts |= {
            (c, "cousin_of", n)
            for child in born
            for c in children.get(child, [])
            for n in nephews[child]
        }
    facts |= {
        (person, "sibling_of", other) for person, others in siblings.items() for other in others
    }
    facts |= {(t, _OPPOSITE[r], h) for h, r, t in facts}
    return sorted(facts)


def split(facts: list[Triple], seed: int) -> tuple[list[Triple], list[Triple], list[Triple]]:
    """Training, validation and test triples; the last two get 10% each.

    The opposites of held-out triples stay in training.
    """
    rng = np.random.default_rng([seed, 0x5B17])
    back = {b: a for a, b in _OPPOSITE.items()} | _OPPOSITE
    held: set[Triple] = set()
    for i in rng.permutation(len(facts)):
        head, relation, tail = facts[i]
        if (tail, back[relation], head) not in held:
            held.add(facts[i])
        if len(held) >= len(facts) // 5:
            break
    ordered = [f for f in facts if f in held]
    order = rng.permutation(len(ordered))
    half = len(ordered) // 2
    valid, test = ([ordered[i] for i in sorted(part)] for part in (order[:half], order[half:]))
    return [f for f in facts if f not in held], valid, test
