"""Whether the machine has fonts for what a picture writes.

The program that draws the pictures (vl-convert) takes each character from the first font that has
it, and draws a box where none does. It is asked itself, by drawing each character.
"""

from __future__ import annotations

import html
import unicodedata

from bilm.core.errors import InputError
from bilm.extras import import_extra

_LATIN = "Liberation Sans, Helvetica Neue, Arial, sans-serif"
# Families of fonts for Chinese, Japanese and Korean; the first that a machine has is taken.
_EAST_ASIAN = (
    "Noto Sans CJK SC, Noto Sans SC, Source Han Sans SC, PingFang SC, Hiragino Sans GB, "
    "Microsoft YaHei, WenQuanYi Zen Hei, WenQuanYi Micro Hei, Noto Sans CJK JP, SimHei, sans-serif"
)
_NO_CHARACTER = "\U0010fffe"  # Unicode assigns it to nothing
_NAMED = 5  # characters in a message, at most


def font_for(text: str) -> str:
    """The families of fonts for a text, as CSS has them: the first that is there is taken."""
    return _EAST_ASIAN if any(map(_is_east_asian, text)) else _LATIN


def require_font(text: str) -> None:
    """Check that each character of a text can be drawn with the machine's fonts.

    Raises:
        InputError: names the characters that no font has, and what to install.
    """
    missing = _missing(text, font_for(text))
    if not missing:
        return
    shown = ", ".join(f"{character} (U+{ord(character):04X})" for character in missing[:_NAMED])
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    noto, package = "Noto Sans", "fonts-noto-core"
    if any(map(_is_east_asian, missing)):
        noto, package = "Noto Sans CJK", "fonts-noto-cjk"
    raise InputError(
        f"No font of this machine has {shown}{more}, which would be drawn as boxes: install "
        f"{noto} (`apt install {package}` on Debian and Ubuntu), or write an .html picture, which "
        "takes the fonts of whoever opens it."
    )


def _missing(text: str, font: str) -> list[str]:
    visible = sorted(c for c in set(text) if unicodedata.category(c) not in _UNSEEN)
    if text.isascii():
        return []
    box = _drawn(_NO_CHARACTER, font)
    return [character for character in visible if _drawn(character, font) == box]


# Blanks, and characters that only say how others are drawn.
_UNSEEN = {"Zs", "Zl", "Zp", "Cc", "Cf"}


def _drawn(character: str, font: str) -> bytes:
    """A small PNG of one character."""
    vl_convert = import_extra("vl_convert", "A picture of occurrences")
    return vl_convert.svg_to_png(
        '<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24">'
        f'<text x="2" y="18" font-size="16" font-family="{font}">{html.escape(character)}</text>'
        "</svg>"
    )


def _is_east_asian(character: str) -> bool:
    """Whether it is wide: Chinese, Japanese and Korean characters and their punctuation."""
    return (
        unicodedata.east_asian_width(character) in "WF" and unicodedata.category(character) != "So"
    )
