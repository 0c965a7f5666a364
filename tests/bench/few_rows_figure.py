"""The figure of few rows, from the tables in docs/experiments.md: a panel per task, a line per method.

    python tests/bench/few_rows_figure.py docs/experiments.md >docs/experiments/few-rows.svg
"""
import re
import sys

COLORS = {"mlp": "#3b7dd8", "mlp, 32 neurons": "#c2410c", "direct": "#7aa7e0", "adapter": "#2f855a", "full": "#805ad5", "LoRA": "#b7791f",
          "rows in the context": "#888"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 132, 170, 40, 62, 52


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read(path):
    """Returns {task: {method: [(rows, mean)]}} of section 11."""
    with open(path, encoding="utf-8") as file:
        part = re.split(r"\n## ", file.read().split("## 11. Few rows")[1])[0]
    panels, header = {}, []
    for line in part.splitlines():
        if not line.startswith("|"):
            continue
        cells = cells_of(line)
        if cells[0] in ("task", "rows, steps"):
            header, task = cells, cells[0] == "task"
            continue
        first = 2 if task else 1
        rows = re.match(r"\d+", cells[first - 1])
        for method, cell in zip(header[first:], cells[first:]) if rows else []:
            mean = re.match(r"[\d.]+", cell)
            if mean and method in COLORS:
                panels.setdefault(cells[0] if task else "E2E", {}).setdefault(method, []).append((int(rows.group()), float(mean.group())))
    return panels


def panel(at, task, lines):
    every = [mean for line in lines.values() for _, mean in line]
    low, high = min(every), max(every)
    places = sorted({rows for line in lines.values() for rows, _ in line})

    def x(rows):
        return at + places.index(rows) * WIDTH / (len(places) - 1)

    def y(mean):
        return TOP + HEIGHT * (high - mean) / (high - low)
    print(f'<text x="{at}" y="{TOP - 12}" font-weight="bold">{task}: {"loss" if task == "E2E" else "entity F1" if task == "WNUT-17" else "accuracy"}</text>')
    for rows in places:
        print(f'<path d="M{x(rows):.1f} {TOP}V{TOP + HEIGHT}" stroke="#8884"/><text x="{x(rows):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{rows}</text>')
    for mean in (low, high):
        print(f'<text x="{at - 5}" y="{y(mean) + 4:.1f}" text-anchor="end">{mean:g}</text>')
    for method, line in lines.items():
        points = " ".join(f"{x(rows):.1f},{y(mean):.1f}" for rows, mean in line)
        print(f'<polyline points="{points}" fill="none" stroke="{COLORS[method]}" stroke-width="2"/>')


def main():
    panels = read(sys.argv[1])
    width = LEFT + len(panels) * (WIDTH + GAP)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + 26}" width="{width}" height="{TOP + HEIGHT + 26}" '
          'style="max-width:100%" role="img" fill="#888" font-family="sans-serif" font-size="12">')
    print("<title>scores by training rows</title>")
    at = LEFT
    for method, color in COLORS.items():
        print(f'<path d="M{at} 16h18" stroke="{color}" stroke-width="3"/><text x="{at + 23}" y="20">{method}</text>')
        at += 40 + 7 * len(method)
    for i, (task, lines) in enumerate(panels.items()):
        panel(LEFT + i * (WIDTH + GAP), task, lines)
    print("</svg>")


if __name__ == "__main__":
    main()
