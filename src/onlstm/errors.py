"""The one exception for a user's mistake, which the command line prints before it exits with 2; and checks."""

import difflib
import math
from collections.abc import Collection


class UserError(Exception):
    """A mistake the user can mend; the message names the file, line or setting and the way out."""


def nearest(name: str, known: Collection[str], *, choices: bool = False) -> str:
    """Return a hint at the known name that is most like `name`; at all of them if there is none, or for `choices`.

    >>> nearest("tabel9", ["table1", "figure-a1"], choices=True)
    'did you mean table1? There are table1, figure-a1'
    """
    near, every = difflib.get_close_matches(name, known, n=1, cutoff=0.5), ", ".join(known)
    if not near:
        return f"there are {every}"
    return f"did you mean {near[0]}?" + (f" There are {every}" if choices else "")


def at_least(settings: object, prefix: str, **limits: float) -> None:
    """Raise a `UserError` for the first field of `settings` that is below its limit, or no number."""
    for name, limit in limits.items():
        value = getattr(settings, name)
        if not isinstance(value, int | float) or not value >= limit:
            raise UserError(f"{prefix}{name} {value}: at least {limit:g} is needed")


def at_least_one(**options: int) -> None:
    """Raise a `UserError` that names the first option that is not positive."""
    for name, value in options.items():
        if value < 1:
            raise UserError(f"{name} {value}: at least 1 is needed")


def at_most(**options: tuple[float, float]) -> None:
    """Raise a `UserError` that names the first option above its limit; each has its value and that."""
    for name, (value, limit) in options.items():
        if value > limit:
            raise UserError(f"{name} {value}: at most {limit:,} is possible")


def check_seed(seed: int, name: str = "seed") -> None:
    """Raise a `UserError` unless every generator of random numbers takes the seed."""
    if not 0 <= seed < 2**63:
        raise UserError(f"{name} {seed}: a number from 0 to below 2**63 is needed")


def one_of(name: str, value: object, known: Collection[str]) -> None:
    """Raise a `UserError` unless `value` is one of the known words."""
    if value not in known:
        raise UserError(f"{name} {value}: there are {', '.join(known)}")


def nearest_divisors(divisor: int, *sizes: int) -> list[int] | None:
    """Return the common proper divisors of sizes next to `divisor`; None if it is one itself.

    >>> nearest_divisors(12, 1150), nearest_divisors(10, 1150, 400)
    ([10, 23], None)
    """
    common = math.gcd(*sizes)
    divisors = [k for k in range(1, min(common + 1, *sizes)) if not common % k]
    if divisor in divisors:
        return None
    return [k for k in divisors if k < divisor][-1:] + [k for k in divisors if k > divisor][:1]
