"""The G-test of counts against probabilities."""

import math


def upper_tail(statistic, degrees):
    """Returns P[chi-squared(degrees) > statistic]: the regularized upper incomplete gamma function (Numerical Recipes 6.2)."""
    a, x = degrees / 2, statistic / 2
    if x <= 0:
        return 1.0
    scale = math.exp(-x + a * math.log(x) - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while term > total * 1e-15:
            n += 1
            term *= x / n
            total += term
        return 1 - total * scale
    b = x + 1 - a
    c, d = 1e300, 1 / b
    h = d
    for i in range(1, 10000):
        an = -i * (i - a)
        b += 2
        d = 1 / (an * d + b)
        c = b + an / c
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return scale * h


def g_test(counts, probabilities):
    """Returns the probability of a deviation of at least this size if `probabilities` are right. Cells with fewer than 10 expected draws
    are merged. A draw with probability 0 is impossible."""
    total = sum(counts.values())
    if any(count and probabilities.get(cell, 0) <= 0 for cell, count in counts.items()):
        return 0.0
    cells, rest = [], [0, 0.0]
    for cell, probability in probabilities.items():
        observed, expected = counts.get(cell, 0), probability * total
        if expected >= 10:
            cells.append((observed, expected))
        else:
            rest[0] += observed
            rest[1] += expected
    if rest[1] > 0:
        cells.append(tuple(rest))
    statistic = 2 * sum(observed * math.log(observed / expected) for observed, expected in cells if observed)
    return upper_tail(statistic, len(cells) - 1)
