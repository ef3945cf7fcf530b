"""`Picture`: a drawing as SVG. All text is escaped."""

from __future__ import annotations

from html import escape

_STYLE = """
  svg { --back: #ffffff; --ink: #1f2328; --soft: #59636e; --line: #8c959f; --box: #f6f8fa; --ours: #fff1e5;
        --ours-line: #bc4c00; --good: #dafbe1; --good-line: #1a7f37; }
  @media (prefers-color-scheme: dark) {
    svg { --back: #151b23; --ink: #e6edf3; --soft: #9198a1; --line: #656c76; --box: #212830; --ours: #3d2a17;
          --ours-line: #ff9d5c; --good: #12361f; --good-line: #3fb950; } }
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 14px; fill: var(--ink); }
  text.soft { fill: var(--soft); font-size: 12px; }
  text.mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 12px; white-space: pre; }
  text.over { paint-order: stroke; stroke: var(--back); stroke-width: 5px; }
  text.head { font-weight: 600; }
  rect { fill: var(--box); stroke: var(--line); }
  rect.back { fill: var(--back); stroke: none; }
  rect.ours { fill: var(--ours); stroke: var(--ours-line); }
  rect.good { fill: var(--good); stroke: var(--good-line); }
  rect.group { fill: none; stroke-dasharray: 5 4; }
  path { fill: none; stroke: var(--line); stroke-width: 1.5; }
  path.ours { stroke: var(--ours-line); }
  path.dashed { stroke-dasharray: 5 4; }
  marker path { fill: var(--line); stroke: none; }
  marker.ours path { fill: var(--ours-line); }
"""
_MARKER = (
    '<marker id="{0}" class="{1}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z"/></marker>'
)


class Picture:
    """A drawing of boxes, arrows and text, built from back to front. Lengths are pixels.

    It follows `prefers-color-scheme`: its colors are those of a light or a dark page. It has its own background, so it
    stays readable on a page whose colors the reader has switched.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._width, self._height, self._title = width, height, title
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, words: str = "", style: str = "") -> None:
        """Draw a box with centered lines of text. The first line is black, the others are gray."""
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"{_class(style)}/>')
        lines = words.splitlines()
        top = y + height / 2 - 9 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + 18 * number, line, "soft" if number else "", anchor="middle")

    def text(self, x: float, y: float, words: str, style: str = "", anchor: str = "start") -> None:
        """Draw a line of text."""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{_class(style)}>{escape(words, quote=False)}</text>'
        )

    def arrow(self, points: str, style: str = "", head: bool = True) -> None:
        """Draw a path, in the language of SVG's `d`, with an arrow at its end."""
        end = f' marker-end="url(#{"ours" if "ours" in style else "plain"})"' if head else ""
        self._parts.append(f'<path d="{points}"{_class(style)}{end}/>')

    def svg(self) -> str:
        """Return the file."""
        markers = _MARKER.format("plain", "plain") + _MARKER.format("ours", "ours")
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
        title = escape(self._title, quote=False)
        head += f'width="{self._width}" height="{self._height}" role="img"><title>{title}</title>'
        back = f'<rect class="back" width="{self._width}" height="{self._height}" rx="8"/>'
        return "\n".join([head, f"<style>{_STYLE}</style>", f"<defs>{markers}</defs>", back, *self._parts, "</svg>\n"])


def _class(style: str) -> str:
    return f' class="{style}"' if style else ""
