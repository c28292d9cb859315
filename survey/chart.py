"""The survey's one picture: bars with their names and numbers, as SVG."""

from html import escape

WIDTH, LEFT, ROW, TOP = 720, 250, 30, 44
SOLID, PALE, INK = "#b3261e", "#8a9aa9", "#1f2328"


def bars(title, rows):
    """An SVG: a bar for each (name, number, is it the one to look at)."""
    height = TOP + ROW * len(rows) + 12
    most = max(number for _, number, _ in rows)
    said = "; ".join(f"{name}: {number}" for name, number, _ in rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="15">',
        f"<title>{escape(title)}</title><desc>{escape(said)}</desc>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="27" font-weight="bold" fill="{INK}">{escape(title)}</text>',
    ]
    for place, (name, number, looked_at) in enumerate(rows):
        y = TOP + ROW * place
        width = round((WIDTH - LEFT - 60) * number / most)
        colour, weight = (SOLID, "bold") if looked_at else (PALE, "normal")
        lines += [
            f'<text x="{LEFT - 10}" y="{y + 17}" text-anchor="end" font-weight="{weight}" '
            f'fill="{INK}">{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{y + 2}" width="{width}" height="20" fill="{colour}"/>',
            f'<text x="{LEFT + width + 8}" y="{y + 17}" font-weight="{weight}" '
            f'fill="{INK}">{number}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"
