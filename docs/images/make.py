#!/usr/bin/env python3
"""Makes the pictures of the terminal client: runs it in tmux with an agent that plays stories, and writes its screens as SVG.

    docs/images/make.py target/release/parlor target/release/xtask
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
import unicodedata

CELL_WIDTH, CELL_HEIGHT = 8.4, 18
PALETTE = ["#1b1e24", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4"]
BRIGHT = ["#767d89", "#f08b92", "#b3dc96", "#f2d49a", "#82c4ff", "#d897ec", "#74d0dc", "#ffffff"]
TEXT, BACKGROUND = "#c8ccd4", "#16181d"

# The prompts that the agent knows (xtask/src/web/story.rs).
ROTATION = ("Lines at the end of a log are lost when it rotates (#214). Find out why, fix it, and add a test that fails "
            "without the fix.")
WINDOWS = "Good. It has to work on Windows, too: files have no inode there."
RELEASE = "Tag 0.9.3 and push the tag."
FORM = "The retry test in `uploads` is flaky."
FAILURE = "Move CI to the arm64 runners."
LONG = "Split the parser into a crate of its own."


def columns(text):
    """How many columns a text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


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


def svg(screen, size):
    """A screen with SGR sequences as an SVG picture."""
    width, height = size[0] * CELL_WIDTH + 24, size[1] * CELL_HEIGHT + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-size="14"'
        ' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace">',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    # tmux repeats no style at the start of a line.
    style = {}
    for row, line in enumerate(screen.split("\n")[:size[1]]):
        column = 0
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
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{columns(part) * CELL_WIDTH:.1f}" height="{CELL_HEIGHT}" fill="{back}"/>')
            if part.strip():
                looks = ' font-weight="bold"' * bool(style.get("bold")) + ' opacity="0.65"' * bool(style.get("dim"))
                looks += ' text-decoration="underline"' * bool(style.get("underline"))
                out.append(
                    f'<text x="{x:.1f}" y="{y + 13}" fill="{text}"{looks} xml:space="preserve"'
                    f' textLength="{columns(part) * CELL_WIDTH:.1f}">{html.escape(part)}</text>'
                )
            column += columns(part)
    return "\n".join([*out, "</svg>", ""])


def main():
    parlor, xtask = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    images = pathlib.Path(__file__).parent
    home = pathlib.Path(tempfile.mkdtemp())
    source = home / "src"
    env = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "XDG_CONFIG_HOME": str(home / "config"),
           "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    config = home / "config" / "parlor" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'default_agent = "coder"\n[agents.coder]\ncommand = ["{xtask}", "screenshots", "--agent", "{home}/stories.db"]\n')
    tmux = ["tmux", "-L", f"parlor-images-{os.getpid()}", "-f", "/dev/null"]

    def run(*args, project="tailfin"):
        work = source / project
        work.mkdir(parents=True, exist_ok=True)
        return subprocess.run(args, env=env, cwd=work, check=True, capture_output=True, text=True).stdout

    def prompt(project, text, *options):
        made = run(parlor, "prompt", "--new", "--json", *options, text, project=project)
        return re.search(r'"sessionId":"([^"]+)"', made).group(1)

    def screen():
        return run(*tmux, "capture-pane", "-e", "-p", "-t", "parlor")

    def press(*keys):
        run(*tmux, "send-keys", "-t", "parlor", *keys)

    def wait_for(text):
        deadline = time.monotonic() + 60
        while text not in re.sub(r"\x1b\[[0-9;]*m", "", screen()):
            if time.monotonic() > deadline:
                sys.exit(f"the screen has no '{text}':\n{screen()}")
            time.sleep(0.05)

    def take(name, size, text):
        """Waits for a text at a size, and writes the screen."""
        run(*tmux, "resize-window", "-t", "parlor", "-x", str(size[0]), "-y", str(size[1]))
        wait_for(text)
        time.sleep(0.5)
        (images / f"{name}.svg").write_text(svg(screen(), size))

    try:
        for project, text in [("tailfin", "Raise the MSRV to 1.89"), ("quorum", "Why is the lease renewed twice?"),
                              ("tailfin", "Benchmark memchr against std")]:
            prompt(project, text, "--yes")
        subprocess.run([parlor, "prompt", "--new", "--yes", FAILURE], env=env, cwd=source / "quorum", capture_output=True, check=False)
        prompt("quorum", LONG, "--no-wait")
        prompt("courier", FORM, "--no-wait")
        prompt("tailfin", RELEASE, "--no-wait")
        session = prompt("tailfin", ROTATION, "--yes")
        fork = run(parlor, "fork", "--at", "2", session).strip()
        run(parlor, "title", fork, "Use inotify instead of polling")
        run(*tmux, "new-session", "-d", "-x", "120", "-y", "36", "-s", "parlor", f"{parlor} attach {session}")
        take("conversation", (120, 36), "Idle")
        take("narrow", (44, 24), "Idle")
        run(*tmux, "resize-window", "-t", "parlor", "-x", "100", "-y", "30")
        press("C-f")
        press("rotation")
        take("search", (100, 20), "hits in")
        press("Escape")
        wait_for("Enter send")
        press("C-t")
        take("inbox", (100, 16), "requests wait for you")
        press("Escape")
        wait_for("Enter send")
        run(parlor, "prompt", "-s", session, "--no-wait", WINDOWS)
        take("request", (100, 34), "Esc not now")
        press("Escape")
        wait_for("Tab answers")
        press("C-o")
        wait_for("Open a session")
        press("uploads")
        wait_for("1 of ")
        press("Enter")
        take("form", (100, 24), "[ Submit ]")
        press("Escape")
        wait_for("Tab answers")
        press("C-o")
        wait_for("Open a session")
        press("rotates")
        wait_for("1 of ")
        press("Enter")
        wait_for("Esc not now")
        press("Escape")
        press("C-p")
        press("fork", "Space", "tree")
        wait_for("1 of ")
        press("Enter")
        take("forks", (100, 24), "Fork tree")
        press("Escape")
        wait_for("Tab answers")
        press("F1")
        take("help", (120, 36), "Anywhere")
    finally:
        subprocess.run([*tmux, "kill-server"], capture_output=True, check=False)
        subprocess.run([parlor, "stop"], env=env, cwd=home, capture_output=True, check=False)
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
