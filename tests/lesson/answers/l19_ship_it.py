"""Answers to the exercises of lesson 19: wrong ones that must be rejected, right ones written differently."""

from statistics import mean

from labkit.lesson.exercises.l19_ship_it import best_medal, forgets_more, without_each


def meeting(fits=lambda found, level: True, order=lambda levels: levels, none=None):
    """`best_medal` with a choice of mistakes."""

    def answer(found, levels):
        return next((level["name"] for level in order(levels) if fits(found, level)), none)

    return answer


def right(found, level):
    return found["accuracy"] >= level["accuracy"]


def fast(found, level):
    return found["latency"] <= level["latency"]


def small(found, level):
    return found["size"] <= level["size"]


def everything(found, level):
    return right(found, level) and fast(found, level) and small(found, level)


def strictly(found, level):
    return found["accuracy"] > level["accuracy"] and fast(found, level) and small(found, level)


def shares(combine):
    """`forgets_more` from the four shares."""
    return lambda *lists: combine(*map(mean, lists))


def by_index(kept, changed, reference_kept, reference_changed):
    total = 0
    for place in range(len(kept)):
        total += kept[place] - changed[place] - reference_kept[place] + reference_changed[place]
    return total / len(kept)


def leaving_out(change):
    """`without_each` with another difference."""

    def answer(techniques, score):
        whole = score(frozenset(techniques))
        return {each: change(whole, frozenset(techniques), each, score) for each in techniques}

    return answer


def one_alone(whole, techniques, each, score):
    return score(frozenset({each})) - score(frozenset())


def in_a_loop(techniques, score):
    found, chosen = {}, frozenset(techniques)
    for each in techniques:
        rest = frozenset(name for name in techniques if name != each)
        found[each] = score(chosen) - score(rest)
    return found


def taking_away_for_good(techniques, score):
    found, left = {}, frozenset(techniques)
    for each in techniques:
        before, left = score(left), left - {each}
        found[each] = before - score(left)
    return found


WRONG = {
    "best-medal": {
        "looks at the accuracy alone": meeting(right),
        "any of the three is enough": meeting(lambda f, lv: right(f, lv) or fast(f, lv) or small(f, lv)),
        "from the easiest on": meeting(everything, order=lambda levels: levels[::-1]),
        "beyond the limit only": meeting(strictly),
        "forgets the size": meeting(lambda f, lv: right(f, lv) and fast(f, lv)),
        "bronze for everybody": meeting(everything, none="bronze"),
    },
    "forgets-more": {
        "its own loss only": shares(lambda a, b, c, d: a - b),
        "the reference's minus its own": shares(lambda a, b, c, d: (c - d) - (a - b)),
        "a ratio": shares(lambda a, b, c, d: (a - b) / (c - d) if c - d else 0.0),
        "compares the copies only": shares(lambda a, b, c, d: d - b),
        "never below zero": shares(lambda a, b, c, d: max((a - b) - (c - d), 0)),
        "in points": shares(lambda a, b, c, d: 100 * ((a - b) - (c - d))),
    },
    "without-each": {
        "what each does alone": leaving_out(one_alone),
        "the score without it": leaving_out(lambda whole, all_of, each, score: score(all_of - {each})),
        "the other way round": leaving_out(lambda whole, all_of, each, score: score(all_of - {each}) - whole),
        "takes one after the other away": taking_away_for_good,
        "a share": leaving_out(lambda whole, all_of, each, score: 1 - score(all_of - {each}) / whole),
    },
}


def by_the_courses_names(found, levels):
    names = ("gold", "silver", "bronze")
    return best_medal(found, [level | {"name": name} for name, level in zip(names, levels, strict=False)])


WRONG["best-medal"] |= {
    "the course's names": by_the_courses_names,
    "three levels": lambda found, levels: best_medal(found, levels[:3]),
    "the accuracy rounded": lambda found, levels: best_medal(found | {"accuracy": round(found["accuracy"], 2)}, levels),
    "whole kB": lambda found, levels: best_medal(found | {"size": int(found["size"])}, levels),
    "sorted by accuracy": lambda found, levels: best_medal(found, sorted(levels, key=lambda each: -each["accuracy"])),
    "sorted by size": lambda found, levels: best_medal(found, sorted(levels, key=lambda each: each["size"])),
}
WRONG["forgets-more"] |= {
    f"rounded to {digits} digits": lambda *lists, digits=digits: round(forgets_more(*lists), digits)
    for digits in (2, 3, 4)
}


def worth_changed(change):
    return lambda techniques, score: {name: change(worth) for name, worth in without_each(techniques, score).items()}


WRONG["without-each"] |= {
    "at least 0": worth_changed(lambda worth: max(0, worth)),
    "the size only": worth_changed(abs),
    "rounded to 3 digits": worth_changed(lambda worth: round(worth, 3)),
    "leaves out names that begin alike": lambda techniques, score: {
        each: score(frozenset(techniques))
        - score(frozenset(other for other in techniques if not other.startswith(each)))
        for each in techniques
    },
}

RIGHT = {
    "best-medal": {
        "by a generator": meeting(everything),
        "by the names of those that fit": lambda f, levels: (
            [lv["name"] for lv in levels if everything(f, lv)] or [None]
        )[0],
        "the reference": best_medal,
    },
    "forgets-more": {
        "from the four shares": shares(lambda a, b, c, d: float((a - b) - (c - d))),
        "picture by picture": by_index,
    },
    "without-each": {
        "in a loop": in_a_loop,
        "by a difference of sets": leaving_out(lambda whole, all_of, each, score: whole - score(all_of - {each})),
    },
}
