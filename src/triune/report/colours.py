"""A colour for each model, made readable on light and on dark ground."""

from collections.abc import Mapping

# Told apart without colour vision, and the same for an operator in every figure.
COLOURS = {
    "standard": "#0072B2",
    "symmetric": "#E69F00",
    "pairwise": "#009E73",
    "shared": "#D55E00",
    "kv-tied": "#CC79A7",
    "qkv-tied": "#56B4E9",
}
LIGHT, DARK = "#ffffff", "#15181d"  # the grounds of charts in style.css
# Lines and marks need at least 3 : 1 (WCAG 1.4.11); on dark ground thin lines need more to be told apart.
CONTRAST = {LIGHT: 3.1, DARK: 4.5}
_OTHERS = ("#7E57C2", "#8D6E63", "#607D8B", "#AFB42B", "#EC407A", "#26A69A")


def palette(models: Mapping[str, str]) -> list[tuple[str, str]]:
    """(on light, on dark) for each model, given with its operator: the first of an operator has the operator's."""
    others = iter(_OTHERS * (1 + len(models) // len(_OTHERS)))
    taken: set[str] = set()
    chosen = []
    for operator in models.values():
        colour = COLOURS.get(operator, "")
        if not colour or colour in taken:
            colour = next(others)
        taken.add(colour)
        chosen.append((readable(colour, LIGHT), readable(colour, DARK)))
    return chosen


def readable(colour: str, ground: str) -> str:
    """The colour, as much darker or lighter as the ground demands."""
    goal = 0 if _luminance(ground) > 0.2 else 255
    for step in range(26):
        mixed = _mix(colour, goal, step / 25)
        if contrast(mixed, ground) >= CONTRAST[ground]:
            return mixed
    return _mix(colour, goal, 1.0)


def contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _channels(colour: str) -> list[int]:
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]


def _mix(colour: str, goal: int, share: float) -> str:
    return "#" + "".join(f"{round(one + (goal - one) * share):02x}" for one in _channels(colour))


def _luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in _parts(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _parts(colour: str) -> list[float]:
    return [one / 255 for one in _channels(colour)]
