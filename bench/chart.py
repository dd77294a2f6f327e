"""A bar chart as SVG text: one bar a row, ratio to the best peer with its 95 % interval. No library needed."""
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 760, 230, 150, 16, 8, 56
STYLE = "font-family: system-ui, sans-serif; font-size: 12px"


def _text(x, y, text, anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(text)}</text>'


def _axis(scale, bottom, top_value):
    lines = []
    for tick in [i / 4 for i in range(int(top_value * 4) + 1)]:
        x = LEFT + tick * scale
        dash = "" if tick == 1 else ' stroke-dasharray="2 3"'
        lines.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="#888"{dash}/>')
        lines.append(_text(x, TOP - 12, f"{tick:g}", "middle"))
    return lines


def _ours(row):
    """The better of the program as it stands and the best of its settings: its name and its ratio to the best peer."""
    ratios = {name: of_peer[row["best_peer"]] for name, of_peer in row["ratios"].items()}
    name = max(ratios, key=lambda name: ratios[name]["median"])
    return name, ratios[name]


def _bar(row, y, scale):
    name, ratio = _ours(row)
    own = row["candidates"][name]
    middle, end = y + BAR / 2, LEFT + ratio["median"] * scale
    low, high = LEFT + ratio["low"] * scale, LEFT + ratio["high"] * scale
    return [
        _text(LEFT - 8, middle + 4, f"{row['bench']} {row['shape']}", "end"),
        f'<rect x="{LEFT}" y="{y}" width="{end - LEFT:.1f}" height="{BAR}" fill="#4a7fb5"/>',
        f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {y + 4}V{y + BAR - 4}M{high:.1f} {y + 4}V{y + BAR - 4}" stroke="#222"/>',
        _text(WIDTH - RIGHT + 12, middle + 4, f"{own['median']:.0f} {row['unit']}, {ratio['median']:.2f} of {row['best_peer']}"),
    ]


def draw(rows, title):
    rows = [row for row in rows if row["ratios"] and row["best_peer"]]
    top_value = max([1.25] + [_ours(row)[1]["high"] for row in rows])
    scale = (WIDTH - LEFT - RIGHT) / top_value
    bottom = TOP + len(rows) * (BAR + GAP)
    body = [_text(8, 20, title, extra=' font-weight="bold"')] + _axis(scale, bottom, top_value)
    for number, row in enumerate(rows):
        body += _bar(row, TOP + number * (BAR + GAP), scale)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 60}" height="{bottom + 12}" style="{STYLE}">\n'
            '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n")
