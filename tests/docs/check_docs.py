# SPDX-License-Identifier: MIT
"""Checks README.md, CONTRIBUTING.md, CHANGELOG.md and docs/*.md.

  check_docs.py quotes
      Each block of code quotes a file of examples/, each file that a diagram names exists, each
      link leads somewhere, and each command names a program and options that exist.
  check_docs.py run PAGE [--python PYTHON]
      Runs the commands of a page, in order and in one scratch folder, and compares their output.

Both take --programs PATH... (what was built) and --build FOLDER. The scratch folder looks like a
checkout with build/release in it, so the commands run as they are written. Pages that run
.venv/bin/python need --python with the packages of tests/python/requirements.txt.

A console block holds commands, "$ ..." each, and their output. A line "..." in the output matches
any lines. A command that is quoted without output only has to succeed.
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap

SOURCE = pathlib.Path(__file__).resolve().parents[2]

# Commands that no test runs. Their programs and options are checked all the same.
NOT_RUN = [
    (r"sh cmake/bootstrap\.sh ", "installs packages and builds the project"),
    (r"cmake --workflow ", "builds the project"),
    (r"cmake --build (build/release|--preset)", "builds parts of the project"),
    (r"(cmake|ninja) .*build/clang", "builds the project with another compiler"),
    (r"ctest ", "runs the tests, this one among them"),
    (r"sudo apt-get install ", "installs packages"),
    (r"tests/(fuzz/run|faults/soak)\.sh ", "takes minutes"),
    (r"tests/mutations/mutate\.py ", "builds the project and runs the tests many times"),
    (r"\.ci/run$", "takes half an hour"),
    (r"build/release/bin/conformance_table$", "prints LibTorch's results too; docs.conformance_table"),
    (r"build/release/bin/bench_", "takes minutes and prints times"),
    (r".*tests/python/bench_loading\.py ", "takes minutes and prints times"),
]


@dataclasses.dataclass
class Shortened:
    """A command that takes minutes, or reads a text that the project does not ship."""

    more: str = ""  # further options for the test
    numbers: bool = True  # whether to compare the output with its numbers masked; else not at all


# The test trains for a few steps on the text of these pages, under the name that the page uses.
TEXT = "tinyshakespeare.txt"
SMALL = " --steps 8 --eval-every 4 --n-layer 2 --n-embd 32 --batch-size 4"
SHORTENED = {
    f"build/release/bin/train_gpt --data {TEXT} --output run --batch-size 12 --threads 1": Shortened(
        more=SMALL.replace(" --batch-size 4", "")
    ),
    "build/release/bin/plot_metrics run": Shortened(),
    "build/release/bin/generate_text --model run --prompt 'ROMEO:' --new-tokens 180 "
    "--temperature 0.8 --top-k 20 --seed 7": Shortened(numbers=False),
    "build/release/bin/inspect_attention --model run --prompt "
    "'ROMEO: But, soft! what light through yonder window breaks?'": Shortened(),
    f"build/release/bin/train_gpt --init-from run --output further --data {TEXT}": Shortened(
        more=" --steps 4 --batch-size 4"
    ),
    "build/release/bin/train_gpt --resume run": Shortened(),
}

# Times and rates, which differ at each run.
MEASURED = [r"[\d.]+ tokens/s", r"\d+:\d\d\b", r"time / ours: [\d.]+"]


@dataclasses.dataclass
class Block:
    page: str
    line: int
    language: str
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def pages():
    top = [SOURCE / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return top + sorted((SOURCE / "docs").glob("*.md"))


def page_name(path):
    return path.relative_to(SOURCE).as_posix()


def blocks(path):
    text = path.read_text()
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(page_name(path), line, match[1], match[2])


def commands(block):
    """(command, quoted output) of a console block."""
    if not block.text.startswith("$ "):
        sys.exit(f"{block}: expected a console block to begin with a command, `$ ...`")
    parts = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2]))


def words(command):
    return shlex.split(command.split("  #")[0])


# ---- What a page quotes.


def example_files():
    found = [p for p in (SOURCE / "examples").rglob("*") if p.is_file()]
    return [p for p in found if p != SOURCE / "examples" / "CMakeLists.txt"]


def quoted_file(text):
    """The file of examples/ that has these lines one after the other, at any indentation."""
    for file in example_files():
        lines = file.read_text().splitlines(keepends=True)
        wanted = text.count("\n")
        for first in range(len(lines) - wanted + 1):
            if textwrap.dedent("".join(lines[first : first + wanted])) == text:
                return file
    return None


def check_quote(block):
    if quoted_file(block.text) is None:
        yield f"{block}: no file of examples/ has these lines:\n{block.text}"


@functools.cache
def tracked_files():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=SOURCE, capture_output=True, text=True
    )
    if listed.returncode == 0:
        return ["/" + name for name in listed.stdout.splitlines()]
    return ["/" + page_name(p) for p in SOURCE.rglob("*") if p.is_file()]


def check_diagram(block):
    """Files and folders that a diagram names: attention.cpp, src/kernels/, tests/rooms.test.cpp."""
    for name in re.findall(r"[\w./-]*\w\.(?:cpp|h|md|py|txt|json|sh|cmake)\b|[\w./-]*\w/", block.text):
        inner = f"/{name}" if name.endswith("/") else None
        known = any(
            (inner in file) if inner else file.endswith("/" + name) for file in tracked_files()
        )
        if not known:
            yield f"{block}: no {name} in the project"


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {slug(h) for h in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def check_links(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.exists():
            yield f"{page_name(path)}: the link {link} leads nowhere"
        elif anchor and anchor not in headings(file):
            yield f"{page_name(path)}: no heading #{anchor} in {page_name(file)}"


# ---- What a command names.


def check_command(block, command, programs):
    """The program exists and its help lists the options."""
    argv = words(command)
    if argv[0] in ("export", "seq", "sudo", "ninja"):
        return
    if argv[0] in ("cmake", "ctest"):
        yield from check_build_command(block, argv)
    elif argv[0].startswith("build/release/bin/"):
        program = programs.get(argv[0].removeprefix("build/release/bin/"))
        if program is None:
            yield f"{block}: {argv[0]} is not built"
            return
        if program.parent.name != "examples" and any(a.startswith("--") for a in argv):
            text = subprocess.run([program, "--help"], capture_output=True, text=True).stdout
            for option in (a.split("=")[0] for a in argv if a.startswith("--")):
                if not re.search(rf"{re.escape(option)}\b", text):
                    yield f"{block}: {argv[0]} --help does not list {option}"
    elif argv[0] == "sh":
        text = subprocess.run(["sh", SOURCE / argv[1], "--help"], capture_output=True, text=True).stdout
        for word in argv[2:]:
            if word not in text:
                yield f"{block}: {argv[1]} --help does not list {word}"
    elif argv[0].endswith("bin/python"):
        for script in (a for a in argv[1:] if a.endswith(".py")):
            if not (SOURCE / script).exists():
                yield f"{block}: no script {script}"
    elif argv[0] != "build/app/app" and not os.access(SOURCE / argv[0], os.X_OK):
        yield f"{block}: expected a program of the project, got {argv[0]}"


def check_build_command(block, argv):
    """Presets, targets and labels of cmake and ctest."""
    presets = json.loads((SOURCE / "CMakePresets.json").read_text())
    kind = "workflowPresets" if "--workflow" in argv else "buildPresets"
    lists = "".join(
        (SOURCE / name[1:]).read_text()
        for name in tracked_files()
        if name.endswith("CMakeLists.txt") or name.endswith(".cmake")
    )
    for option, value in zip(argv, argv[1:]):
        if option == "--preset" and value not in {p["name"] for p in presets[kind]}:
            yield f"{block}: CMakePresets.json has no {value} among its {kind}"
        if option in ("--target", "-L") and not re.search(rf"\b{value}\b", lists):
            yield f"{block}: no CMakeLists.txt has {value}"


def is_run(command):
    return not any(re.match(pattern, command) for pattern, _ in NOT_RUN)


def check_tested(path):
    """A page whose commands can run is in a list of pages that are tested."""
    lists = ["tests/docs/CMakeLists.txt", "tests/python/CMakeLists.txt"]
    text = "".join((SOURCE / name).read_text() for name in lists)
    tested = " ".join(re.findall(r"^ *foreach\(page (.*)\)$", text, re.MULTILINE)).split()
    names = {pathlib.Path(page).stem for page in tested}
    console = [b for b in blocks(path) if b.language == "console"]
    if path.stem not in names and any(is_run(c) for b in console for c, _ in commands(b)):
        yield f"{page_name(path)}: has commands, but is not among the pages of {' or '.join(lists)}"


def check_quotes(programs):
    ran = set()
    for path in pages():
        yield from check_tested(path)
        yield from check_links(path)
        for block in blocks(path):
            if block.language in ("cpp", "python", "cmake", "json"):
                yield from check_quote(block)
            elif block.language == "text":
                yield from check_diagram(block)
            elif block.language == "console":
                for command, _ in commands(block):
                    ran.add(command)
                    yield from check_command(block, command, programs)
            else:
                yield f"{block}: expected a block of cpp, python, cmake, json, text or console"
    for command in SHORTENED.keys() - ran:
        yield f"SHORTENED has a command that no page has: {command}"
    for file in example_files():
        name = file.stem if file.suffix == ".cpp" else file.name
        if file.parent.name == "examples" and not any(re.search(rf"\b{name}\b", c) for c in ran):
            yield f"no page runs examples/{file.name}"


# ---- What a command prints.


def make_checkout(folder, build, programs, python):
    """A folder that looks like the source folder with build/release in it."""
    for entry in SOURCE.iterdir():
        if entry.name not in ("build", ".venv", ".git"):
            (folder / entry.name).symlink_to(entry)
    release = folder / "build" / "release"
    (release / "bin").mkdir(parents=True)
    for entry in build.iterdir():
        if entry.name != "bin":
            (release / entry.name).symlink_to(entry)
    for name, program in programs.items():
        (release / "bin" / name).symlink_to(program)
    if python:
        wrapper = folder / ".venv" / "bin" / "python"
        wrapper.parent.mkdir(parents=True)
        wrapper.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
        wrapper.chmod(0o755)
    (folder / TEXT).write_text("".join(path.read_text() for path in pages()))


def run_block(block, folder):
    """The output of each command of a block, which run in one shell."""
    script = ""
    lines = [c for c, _ in commands(block) if is_run(c)]
    for command in lines:
        shortened = SHORTENED.get(command)
        script += f"{command}{shortened.more if shortened else ''}\n"
        script += "printf '\\036%d\\036' $?\n"
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "DESTDIR")}
    env.update(HOME=str(folder / "home"), OMP_WAIT_POLICY="passive", TQDM_DISABLE="1")
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    parts = done.stdout.split("\036")
    outputs = {}
    for command, output, status in zip(lines, parts[::2], parts[1::2]):
        if status != "0":
            sys.exit(f"{block}: status {status} from\n$ {command}\n{output}")
        outputs[command] = output
    return outputs


def normalized(text, numbers):
    for pattern in MEASURED:
        text = re.sub(pattern, "#", text)
    if not numbers:
        text = re.sub(r"[-+]?\d+(?:[.:,]\d+)*(?:e[-+]\d+)?", "#", text)
        text = re.sub(r"[ \t]+", " ", text)
    return "".join(line.strip() + "\n" if not numbers else line + "\n" for line in text.splitlines())


def agrees(quoted, printed, numbers=True):
    pattern = ""
    for line in normalized(quoted, numbers).splitlines():
        pattern += r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n"
    return re.fullmatch(pattern, normalized(printed, numbers)) is not None


def check_page(page, build, programs, python):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_checkout(folder, build, programs, python)
        (folder / "home").mkdir()
        for block in blocks(SOURCE / page):
            if block.language != "console":
                continue
            outputs = run_block(block, folder)
            for command, quoted in commands(block):
                if not is_run(command) or not quoted:
                    continue
                shortened = SHORTENED.get(command)
                if shortened and not shortened.numbers:
                    continue
                if not agrees(quoted, outputs[command], numbers=shortened is None):
                    yield f"{block}: $ {command}\nquoted:\n{quoted}\nprinted:\n{outputs[command]}"


def check_checker():
    """What the comparison accepts and what it refuses."""
    expectations = [
        ("a\nb\n", "a\nb\n", True, True),
        ("a\n...\nc\n", "a\nb\nb\nc\n", True, True),
        ("a\n...\nc\n", "a\nb\n", True, False),
        ("a\n", "a\nb\n", True, False),
        ("loss 1.5\n", "loss 1.6\n", True, False),
        ("loss 1.5, 10 tokens/s\n", "loss 1.5, 12 tokens/s\n", True, True),
        ("loss  1.5\n", "loss 16.25\n", False, True),
        ("loss 1.5\n", "lost 1.5\n", False, False),
    ]
    for quoted, printed, numbers, expected in expectations:
        if agrees(quoted, printed, numbers) != expected:
            yield f"agrees({quoted!r}, {printed!r}, {numbers}) is not {expected}"
    block = Block("page", 1, "cpp", "int no_such_line;\n")
    if not list(check_quote(block)):
        yield "a quote of nothing is accepted"
    if not list(check_diagram(Block("page", 1, "text", "src/no_such_file.cpp\n"))):
        yield "a diagram of nothing is accepted"
    if not list(check_command(block, "build/release/bin/no_such_program", {})):
        yield "a program that is not built is accepted"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["quotes", "run"])
    parser.add_argument("page", nargs="?", help="README.md or docs/NAME.md")
    parser.add_argument("--programs", nargs="+", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--python", type=pathlib.Path)
    arguments = parser.parse_args()
    programs = {program.name: program for program in arguments.programs}
    if arguments.what == "quotes":
        problems = [*check_checker(), *check_quotes(programs)]
    else:
        problems = list(check_page(arguments.page, arguments.build, programs, arguments.python))
    sys.exit("\n".join(problems) or None)


if __name__ == "__main__":
    main()
