"""Tokens of C and C++, of which a quote in a number or in a raw string begins none."""

from __future__ import annotations

import pytest

from instrumenter.tokens import at_depth_0, closing_parenthesis, tokens


@pytest.mark.parametrize(
    "literal",
    [
        "1'000", "0x1'fF'0", "1'0.5'0e-1'0", "0b1'1u", "123_km", "1'000_km", "2.5e+3", "0x1p-3",
        "'('", "L'('", "u8'\\''", "U'\\\\'", "'('_c", '"a)\\""', 'u8")"', 'L"("s', 'R"x(")x"', 'R"(")"',
        'u8R"x((")")x"_x', 'LR"(\n"")"',
    ],
)  # fmt: skip
def test_a_literal_is_one_token(literal: str) -> None:
    text = f"x({literal}) + ')'".encode()
    assert [token for _, token, _ in tokens(text, 0)] == [b"x", b"(", literal.encode(), b")", b"+", b"')'"]
    assert closing_parenthesis(text, 0) == 2 + len(literal)


def test_tokens_outside_of_brackets() -> None:
    text = b"new T<1'0>[f(a[0])]{'('} + b) c"
    assert [token for token, _ in at_depth_0(text, 0)] == [b"new", b"T", b"<", b"1'0", b">", b"[", b"{", b"+", b"b"]


def test_a_parenthesis_that_nothing_closes() -> None:
    with pytest.raises(ValueError, match="no parenthesis closes at or after byte 2"):
        closing_parenthesis(b"a (')'", 2)
