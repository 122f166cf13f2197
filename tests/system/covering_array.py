"""Chooses few of all combinations of some factors, such that each pair of values stands together in one of them."""

import itertools


def pairs_of(row):
    """Returns the pairs of (factor, value) that stand together in a row, {factor: value}."""
    return set(itertools.combinations(row.items(), 2))


def full_product(factors):
    """Returns all rows of factors, {factor: [value]}."""
    return [dict(zip(factors, values)) for values in itertools.product(*factors.values())]


def covering_array(factors):
    """Returns rows in which every pair of values of two factors stands at least once. They are the same in each run.

    A row begins with the first pair that no row has yet. The other factors get, one after the other, the value that makes the most new
    pairs with those that are chosen already. Of equals, it is the value that stands in the fewest rows.
    """
    missing = dict.fromkeys(pair for first, second in itertools.combinations(factors, 2) for pair in itertools.product(
        [(first, value) for value in factors[first]], [(second, value) for value in factors[second]]))
    rows = []
    while missing:
        chosen = dict(next(iter(missing)))
        for factor in factors:
            if factor in chosen:
                continue

            def worth(value):
                new = sum(pair in missing for other in chosen.items() for pair in ((other, (factor, value)), ((factor, value), other)))
                return new, -sum(row[factor] == value for row in rows)

            chosen[factor] = max(factors[factor], key=worth)
        row = {factor: chosen[factor] for factor in factors}
        for pair in pairs_of(row):
            missing.pop(pair, None)
        rows.append(row)
    return rows
