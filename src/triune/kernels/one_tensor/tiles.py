"""Which tiles a shape gets: a table measured on an H200; nothing is tuned while a user waits."""

from typing import NamedTuple


class Tiles(NamedTuple):
    """Rows a program owns, columns it takes at a time, and how it is compiled.

    `programs` is how many of the short kernels' programs run on a multiprocessor at a time.
    """

    rows: int
    cols: int
    warps: int
    stages: int
    registers: int | None = None
    programs: int = 2

    def __str__(self) -> str:
        cap = f", {self.registers} registers" if self.registers else ""
        return f"{self.rows}×{self.cols}, {self.warps} warps, {self.stages} stages{cap}"


LONGEST_SHORT = 128  # tokens of a sequence that one tile holds
MIXED_TILE = 64  # the same where longer ones lie beside them
MIXED_MEAN = 48


def power_of_two(length: int, least: int, most: int) -> int:
    return min(max(least, 1 << (length - 1).bit_length()), most)


def is_short(length: int, head_width: int, bytes_each: int, packed: bool) -> bool:
    """Whether one tile holds every sequence. In packed batches most are far shorter than the longest."""
    return length <= (MIXED_TILE if packed else LONGEST_SHORT) and head_width <= 64 and bytes_each == 2


def is_mixed(length: int, head_width: int, bytes_each: int, mean: float | None) -> bool:
    """Whether short and longer sequences of a packed batch get a kernel each; `mean` is None where it is not packed.

    With more than `MIXED_MEAN` tokens to a sequence too many are long: one kernel for all is faster.
    """
    return mean is not None and mean <= MIXED_MEAN and length > MIXED_TILE and head_width <= 64 and bytes_each == 2


def is_resident(length: int, head_width: int, bytes_each: int, plain: bool, most: int) -> bool:
    """Whether the kernels for a few tiles take a sequence; `plain`: one length, nothing masked, turned or dropped."""
    return plain and most // 2 < length <= most and head_width == 64 and bytes_each == 2


RESIDENT_TILES = Tiles(64, 64, 4, 2, programs=2)
RESIDENT_FORWARD, RESIDENT_BACKWARD = 256, 128  # the most tokens that they take


def short_forward_tiles(length: int) -> Tiles:
    if length > 64:
        return Tiles(128, 128, 8, 3, 128, programs=2)
    tile = power_of_two(length, 16, 64)
    return Tiles(tile, tile, 4, 3, programs=4)


def short_backward_tiles(length: int) -> Tiles:
    if length > 64:
        return Tiles(128, 128, 8, 3, programs=1)
    tile = power_of_two(length, 16, 64)
    return Tiles(tile, tile, 4, 3, programs=2)


def forward_tiles(length: int, head_width: int, bytes_each: int) -> Tiles:
    if bytes_each == 4 or head_width == 128:
        return Tiles(power_of_two(length, 16, 64), power_of_two(length, 16, 32), 4, 2)
    if length <= 64:
        return Tiles(power_of_two(length, 16, 64), power_of_two(length, 16, 64), 4, 2)
    return Tiles(64, 64, 4, 3, 168)


def backward_tiles(length: int, head_width: int, bytes_each: int) -> Tiles:
    if bytes_each == 4 or head_width == 128:
        return Tiles(power_of_two(length, 16, 32), power_of_two(length, 16, 32), 4, 1)
    if length <= 64:
        return Tiles(power_of_two(length, 16, 64), power_of_two(length, 16, 64), 4, 2)
    return Tiles(64, 64, 4, 3)


def candidates(length: int, usual: Tiles) -> list[Tiles]:
    """What tuning tries for the kernels that loop over columns, the usual ones first."""
    tried = [usual]
    for rows, cols, warps in ((64, 64, 4), (64, 32, 4), (128, 64, 8), (64, 128, 4), (32, 32, 4)):
        for stages in (2, 3):
            for registers in (None, 168 if warps == 4 else 128):
                if rows <= power_of_two(length, 16, 128) and cols <= power_of_two(length, 16, 128):
                    tried.append(Tiles(rows, cols, warps, stages, registers))
    return list(dict.fromkeys(tried))


def described(
    bytes_each: int, symmetric: bool, head_width: int, length: int, plain: bool, packed: bool, mean: float | None
) -> dict[str, str]:
    """What runs in each direction, in words."""
    loop = forward_tiles(length, head_width, bytes_each), backward_tiles(length, head_width, bytes_each)
    way = "one way" if symmetric else "both ways"
    forward, backward = str(loop[0]), f"{way}, {loop[1]}"
    if is_mixed(length, head_width, bytes_each, mean):
        forward = f"whole sequences to {MIXED_TILE}, {short_forward_tiles(MIXED_TILE)}, longer {forward}"
        if symmetric:
            backward = f"whole sequences to {MIXED_TILE}, {short_backward_tiles(MIXED_TILE)}, longer {backward}"
    elif is_short(length, head_width, bytes_each, packed):
        forward = f"whole sequences, {short_forward_tiles(length)}"
        if symmetric:
            backward = f"whole sequences, {short_backward_tiles(length)}"
    if is_resident(length, head_width, bytes_each, plain, RESIDENT_FORWARD):
        forward = f"resident, {RESIDENT_TILES}"
    if symmetric and is_resident(length, head_width, bytes_each, plain, RESIDENT_BACKWARD):
        backward = f"resident, {RESIDENT_TILES}"
    return {"forward": forward, "backward": backward}
