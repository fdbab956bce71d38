"""Integers from text of any length.

``int`` rejects more than 4,300 digits (``sys.get_int_max_str_digits``) with a separate ValueError, leading zeros
included. Text from a request, a file or the command line may have more digits. It is then out of range, or a small
number after zeros; neither is an unexpected error.
"""


def bounded_integer(digits: str, maximum: int) -> int | None:
    """The number from 0 to ``maximum`` written with decimal digits of any script; None for any other text.

    Digits outside the Basic Multilingual Plane are not accepted, because Java parses numbers in units of UTF-16.
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
    """The number of ``bits`` bits written with an optional sign and decimal digits; None for any other text."""
    negative = text[:1] == "-"
    bound = 1 << (bits - 1)
    number = bounded_integer(text[1:] if text[:1] in ("+", "-") else text, bound if negative else bound - 1)
    return -number if negative and number is not None else number
