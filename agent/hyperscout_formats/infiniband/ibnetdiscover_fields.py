"""Reads fields of many lines at once: the same place of every line, eight bytes in each word.

The first byte of the text is the lowest byte of the word. Arithmetic on words reads eight characters in one
operation. Memory grows with the number of lines, not with the number of bytes.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from hyperscout_formats.infiniband.ibnetdiscover_line import (
    CA,
    LANE_GBPS,
    ROUTER,
    SWITCH,
    UNKNOWN,
    WIDTHS,
)

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NO_KIND: Final = 0xFF
KIND_OF_LETTER: Final = np.full(256, NO_KIND, np.uint8)
for _prefix, _kind in ((b"S", SWITCH), (b"H", CA), (b"R", ROUTER), (b"?", UNKNOWN)):
    KIND_OF_LETTER[_prefix[0]] = _kind

# Rates are stored as codes, which index the rows of these two tables. Code 0 is "unknown".
_SPEEDS: Final = (b"HDR", b"NDR", b"EDR", b"XDR", b"FDR", b"QDR", b"DDR", b"SDR", b"FDR10", b"???")
_RATES: Final = [(width, speed) for speed in _SPEEDS for width in WIDTHS]
RATE_GBPS: Final = np.array([0.0] + [w * LANE_GBPS.get(s, 0.0) for w, s in _RATES], np.float32)
RATE_WIDTH: Final = np.array([0] + [w for w, _ in _RATES], np.uint8)
_CODE: Final = {(w, w * LANE_GBPS.get(s, 0.0)): code for code, (w, s) in enumerate(_RATES, 1)}


def word(text: bytes) -> np.uint64:
    """Return the word that begins with these bytes. The remaining bytes are 0."""
    return np.uint64(int.from_bytes(text, "little"))


def _endings() -> list[tuple[np.uint64, np.uint64, int]]:
    """Return (mask, value, code) entries.

    A line has the rate of that code if its last word under `mask` equals `value`.
    """
    endings = []
    for code, (width, speed) in enumerate(_RATES, 1):
        text = b" %dx%s" % (width, speed)
        if len(text) <= 8:  # 12xFDR10 is longer; `ibnetdiscover_line` reads it
            endings.append((word((b"\xff" * len(text)).rjust(8, b"\0")), word(text.rjust(8, b"\0")), code))
    return endings


_ENDINGS: Final = _endings()

# Masks that keep the last n of 16 characters, as two words, and the zeros that replace the others.
_KEEP_HIGH: Final = np.array([word((b"\xff" * n).rjust(16, b"\0")[:8]) for n in range(17)], np.uint64)
_KEEP_LOW: Final = np.array([word((b"\xff" * n).rjust(16, b"\0")[8:]) for n in range(17)], np.uint64)
_ZEROS: Final = word(b"0" * 8)
_ONES: Final = word(b"\1" * 8)
_LOW_NIBBLES: Final = word(b"\x0f" * 8)


def _decimals(closing: bytes) -> npt.NDArray[np.int32]:
    """Return a table from the first two characters to the number, -1 = not a number.

    The characters are a digit and `closing`, such as `7]`, or two digits, such as `12`.
    """
    table = np.full(1 << 16, -1, np.int32)
    for number in range(100):
        table[int(word(b"%d%s" % (number, closing) if number < 10 else b"%d" % number))] = number
    return table


_DECIMALS: Final = {closing: _decimals(closing) for closing in (b"]", b" ")}


def begin_with(firsts: Words, *beginnings: bytes) -> Bools:
    """Return which first words equal one of the beginnings."""
    found: Bools = np.zeros(len(firsts), np.bool_)
    for beginning in beginnings:
        found |= firsts == word(beginning)
    return found


def words_at(data: bytes, at: Offsets, count: int = 1) -> Words:
    """Return (count, len(at)) words from each offset on.

    `data` must contain 8 x count bytes from each offset.
    """
    view = np.ndarray((len(data) - 8 * count + 1,), np.dtype(f"V{8 * count}"), data, strides=(1,))
    return np.ascontiguousarray(view[at].view("<u8").reshape(-1, count).T)


def decimal(words: Words, closing: bytes) -> tuple[Ints, Offsets]:
    """Read numbers of one to three digits at the start of words, up to `closing`.

    Return their values (-1 = not a number) and their numbers of digits.
    """
    end = np.uint64(closing[0])
    byte, mask = np.uint64(8), np.uint64(0xFF)
    value = _DECIMALS[closing][words & np.uint64(0xFFFF)]
    digits = (((words >> byte) & mask) != end) + np.int64(1)
    longer = np.flatnonzero((digits == 2) & (((words >> np.uint64(16)) & mask) != end))
    if len(longer):
        third = ((words[longer] >> np.uint64(16)) & mask).astype(np.int32) - ord("0")
        closed = ((words[longer] >> np.uint64(24)) & mask) == end
        ok = closed & (third >= 0) & (third <= 9) & (value[longer] >= 0)
        value[longer] = np.where(ok, value[longer] * 10 + third, -1)
        digits[longer] = 3
    return value, digits


def hexadecimal(text: Words, digits: Offsets | None = None) -> tuple[Words, Bools]:
    """Read (2, n) words of lower-case hexadecimal digits, of which only the last `digits` of 16 count.

    Return the values, and which of them are valid.
    """
    high, low = text
    if digits is not None:
        keep = _KEEP_HIGH[digits]
        high = (high & keep) | (_ZEROS & ~keep)
        keep = _KEEP_LOW[digits]
        low = (low & keep) | (_ZEROS & ~keep)
    high, high_ok = _eight_digits(high)
    low, low_ok = _eight_digits(low)
    return (high << np.uint64(32)) | low, high_ok & low_ok


def _eight_digits(text: Words) -> tuple[Words, Bools]:
    nibbles = (text & _LOW_NIBBLES) + ((text >> np.uint64(6)) & _ONES) * np.uint64(9)
    letters = ((nibbles + _ONES * np.uint64(6)) >> np.uint64(4)) & _ONES
    # To check all eight characters, the nibbles are written as text again and compared.
    ok = (nibbles + _ZEROS + letters * np.uint64(0x27) == text) & (nibbles & ~_LOW_NIBBLES == 0)
    value = ((nibbles << np.uint64(4)) | (nibbles >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    value = ((value << np.uint64(8)) | (value >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return ((value << np.uint64(16)) | (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF), ok


def rates(data: bytes, ends: Offsets) -> Bytes:
    """Return the codes of the rates at the ends of lines, 0 = unknown."""
    codes = _ending_codes(data, ends)
    rest = np.flatnonzero(codes == 0)
    if len(rest):  # perhaps `-f` added ` s=1 w=2 v=4`, where w and v can have two digits each
        ends = ends[rest]
        for size in (12, 13, 14):
            suffix = words_at(data, ends - size)[0] & word(b"\xff\xff\xff\0\xff\xff\xff\0")
            ends = ends - size * (suffix == word(b" s=\0 w="))
        codes[rest] = _ending_codes(data, ends)
    return codes


def _ending_codes(data: bytes, ends: Offsets) -> Bytes:
    last = words_at(data, ends - 8)[0]
    codes: Bytes = np.zeros(len(ends), np.uint8)
    missing = len(ends)
    for mask, value, code in _ENDINGS:
        if not missing:
            break
        same = (last & mask) == value
        codes[same] = code
        missing -= int(np.count_nonzero(same))
    return codes


def rate_code(width: int, rate_gbps: float) -> int:
    """Return the code of a rate that was read in another way, 0 = unknown."""
    return _CODE.get((width, rate_gbps), 0)
