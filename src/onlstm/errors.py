"""The one exception for a user's mistake, which the command line prints before it exits with 2; and checks."""

import difflib
from collections.abc import Collection


class UserError(Exception):
    """A mistake the user can mend; the message names the file, line or setting and the way out."""


def nearest(name: str, known: Collection[str], prefix: str = "") -> str:
    """Return a hint at the known name that is most like `name`, or at all of them."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {prefix}{near[0]}?" if near else "there are " + ", ".join(prefix + k for k in known)


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


def one_of(name: str, value: object, known: Collection[str]) -> None:
    """Raise a `UserError` unless `value` is one of the known words."""
    if value not in known:
        raise UserError(f"{name} {value}: there are {', '.join(known)}")


def nearest_divisors(divisor: int, *sizes: int) -> list[int] | None:
    """Return the common proper divisors of sizes next to `divisor`; None if it is one itself.

    >>> nearest_divisors(12, 1150), nearest_divisors(10, 1150, 400)
    ([10, 23], None)
    """
    divisors = [k for k in range(1, min(sizes)) if not any(size % k for size in sizes)]
    if divisor in divisors:
        return None
    return [k for k in divisors if k < divisor][-1:] + [k for k in divisors if k > divisor][:1]
