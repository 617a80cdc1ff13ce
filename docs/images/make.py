#!/usr/bin/env python3
"""Makes the pictures of the terminal client: runs it in tmux with the demo agent, and writes its screens as SVG.

    docs/images/make.py target/release/parlor
"""

import html
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

COLUMNS, ROWS = 110, 30
CELL_WIDTH, CELL_HEIGHT = 8.4, 18
PALETTE = ["#1b1e24", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4"]
BRIGHT = ["#767d89", "#f08b92", "#b3dc96", "#f2d49a", "#82c4ff", "#d897ec", "#74d0dc", "#ffffff"]
TEXT, BACKGROUND = "#c8ccd4", "#16181d"

PROMPT = [
    "title Fix flaky port test",
    "think Two tests may take the same port",
    "tool Edit the notes",
    "plan Reproduce the failure;Keep the listener open;Run the test 200 times",
    "say `free_port()` closes its listener **before** the server binds, so two tests can get the same port.",
    "ask Delete the old notes",
]


def colour(codes):
    """The colour that SGR parameters select, and the parameters after them."""
    kind, *rest = codes
    if kind == 5:
        number, *rest = rest
        return ((PALETTE + BRIGHT)[number] if number < 16 else TEXT), rest
    red, green, blue, *rest = rest
    return f"#{red:02x}{green:02x}{blue:02x}", rest


def apply(style, codes):
    """Applies the parameters of one SGR sequence."""
    while codes:
        code, *codes = codes
        if code == 0:
            style.clear()
        elif code in (1, 2, 4, 7):
            style[{1: "bold", 2: "dim", 4: "underline", 7: "reverse"}[code]] = True
        elif code in (22, 24, 27):
            for name in {22: ("bold", "dim"), 24: ("underline",), 27: ("reverse",)}[code]:
                style.pop(name, None)
        elif code in (38, 48):
            style["text" if code == 38 else "back"], codes = colour(codes)
        elif code in (39, 49):
            style.pop("text" if code == 39 else "back", None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style["text"] = PALETTE[code - 30] if code < 90 else BRIGHT[code - 90]
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style["back"] = PALETTE[code - 40] if code < 100 else BRIGHT[code - 100]


def svg(screen):
    """A screen with SGR sequences as an SVG picture."""
    width, height = COLUMNS * CELL_WIDTH + 24, ROWS * CELL_HEIGHT + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-size="14"'
        ' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace">',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    for row, line in enumerate(screen.split("\n")[:ROWS]):
        style, column = {}, 0
        for part in re.split(r"(\x1b\[[0-9;]*m)", line):
            if part.startswith("\x1b["):
                apply(style, [int(code or 0) for code in part[2:-1].split(";")])
                continue
            if not part:
                continue
            text, back = style.get("text", TEXT), style.get("back")
            if style.get("reverse"):
                text, back = back or BACKGROUND, text
            x, y = 12 + column * CELL_WIDTH, 12 + row * CELL_HEIGHT
            if back:
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{len(part) * CELL_WIDTH:.1f}" height="{CELL_HEIGHT}" fill="{back}"/>')
            if part.strip():
                looks = ' font-weight="bold"' * bool(style.get("bold")) + ' opacity="0.65"' * bool(style.get("dim"))
                looks += ' text-decoration="underline"' * bool(style.get("underline"))
                out.append(
                    f'<text x="{x:.1f}" y="{y + 13}" fill="{text}"{looks} xml:space="preserve"'
                    f' textLength="{len(part) * CELL_WIDTH:.1f}">{html.escape(part)}</text>'
                )
            column += len(part)
    return "\n".join([*out, "</svg>", ""])


def main():
    parlor = pathlib.Path(sys.argv[1]).resolve()
    images = pathlib.Path(__file__).parent
    home = pathlib.Path(tempfile.mkdtemp())
    work = home / "src" / "parlor"
    work.mkdir(parents=True)
    env = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "XDG_CONFIG_HOME": str(home / "config"),
           "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    tmux = ["tmux", "-L", f"parlor-images-{os.getpid()}", "-f", "/dev/null"]

    def run(*args):
        return subprocess.run(args, env=env, cwd=work, check=True, capture_output=True, text=True).stdout

    def screen():
        return run(*tmux, "capture-pane", "-e", "-p", "-t", "parlor")

    def wait_for(text):
        deadline = time.monotonic() + 20
        while text not in re.sub(r"\x1b\[[0-9;]*m", "", screen()):
            if time.monotonic() > deadline:
                sys.exit(f"the screen has no '{text}':\n{screen()}")
            time.sleep(0.05)

    try:
        for title in ["Speed up replay", "Document the token", "Weekly summary"]:
            run(parlor, "prompt", "--new", "--agent", "demo", f"title {title}\nsay Done.")
        run(parlor, "prompt", "--new", "--agent", "demo", "--no-wait", "\n".join(PROMPT))
        run(*tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-s", "parlor", f"{parlor} attach")
        wait_for("Allow once")
        (images / "request.svg").write_text(svg(screen()))
        run(*tmux, "send-keys", "-t", "parlor", "y")
        wait_for("Idle")
        (images / "conversation.svg").write_text(svg(screen()))
    finally:
        subprocess.run([*tmux, "kill-server"], capture_output=True, check=False)
        subprocess.run([parlor, "stop"], env=env, cwd=work, capture_output=True, check=False)
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
