"""Integers from text of any length.

``int`` refuses more than 4,300 digits (``sys.get_int_max_str_digits``) with a ValueError of its own, zeros at the front
included. Text that comes from a request, a file or the command line may have more: it is out of range, or a small
number behind zeros, and in neither case is it an unexpected error.
"""


def bounded_integer(digits: str, maximum: int) -> int | None:
    """The number from 0 to ``maximum`` that the decimal digits of any script write; None for any other text.

    Digits outside the Basic Multilingual Plane do not count, because Java reads numbers in units of UTF-16.
    """
    if not digits.isdecimal() or max(digits) > "\uffff":
        return None
    if not digits.isascii():
        digits = "".join([str(int(digit)) for digit in digits])
    significant = digits.lstrip("0")
    if len(significant) > len(str(maximum)):
        return None
    number = int(significant or "0")
    return number if number <= maximum else None


def signed_integer(text: str, bits: int) -> int | None:
    """The number of so many bits that is written with an optional sign and decimal digits; None for any other text."""
    negative = text[:1] == "-"
    bound = 1 << (bits - 1)
    number = bounded_integer(text[1:] if text[:1] in ("+", "-") else text, bound if negative else bound - 1)
    return -number if negative and number is not None else number
