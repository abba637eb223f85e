#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Breaks the library in one place at a time and tells which tests notice.

    tests/mutations/mutate.py --check            each place exists (takes a second)
    tests/mutations/mutate.py                    builds, then runs the tests once per mutation
    tests/mutations/mutate.py --only 3,17        some mutations, by number
    tests/mutations/mutate.py --only src/files   those of a file or folder

mutations.txt lists the places. One build contains all mutations: the script copies the sources to
build/mutations, and replaces each place by a choice at run time. The environment variable
MINI_MUTANT is the number of the mutation that acts; 0 means none.

Each mutation first meets the tests of its room. If none of them fails, it meets the other tests. A
run that takes ten times as long as without a mutation counts as a failure. The exit status is 1 if
no test notices a mutation that mutations.txt does not explain.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "build" / "mutations"

# The folders of tests/ that a mutated folder meets first.
TESTS_OF = {
    "src/kernels": ["kernels", "attention", "modules"],
    "src/attention": ["attention", "kernels"],
    "src/modules": ["modules"],
    "src/training": ["training"],
    "src/files": ["files"],
    "src/figures": ["figures"],
    "apps/common": ["apps/lesson"],
    "apps/lesson": ["apps/lesson"],
    "apps/gpt": ["apps/gpt"],
}

HEADER = """#pragma once
#include <cstdlib>
namespace mini_mutations {
inline const int number = [] {
  const char* text = std::getenv("MINI_MUTANT");
  return text == nullptr ? 0 : std::atoi(text);
}();
}  // namespace mini_mutations
#define MINI_MUTANT(n) (::mini_mutations::number == (n))
"""


class Mutation:
    def __init__(self, number, path, old, new, explanation):
        self.number = number
        self.path = path
        self.old = old
        self.new = new
        self.explanation = explanation

    def __str__(self):
        old = " ".join(self.old.split())
        return f"{self.path}: {old if len(old) <= 60 else old[:57] + '...'}"

    def room(self):
        return str(pathlib.Path(self.path).parent)

    def mutated(self):
        if self.old.endswith((";", "}")):
            return f"if (MINI_MUTANT({self.number})) {{ {self.new} }} else {{ {self.old} }}"
        return f"(MINI_MUTANT({self.number}) ? ({self.new}) : ({self.old}))"


def read_mutations():
    """A block is the path, lines `- old`, lines `+ new`, and lines `= explanation`."""
    mutations = []
    for block in (HERE / "mutations.txt").read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if not lines:
            continue
        parts = {sign: [line[2:] for line in lines[1:] if line[0] == sign] for sign in "-+="}
        mutations.append(
            Mutation(
                len(mutations) + 1,
                lines[0],
                "\n".join(parts["-"]),
                "\n".join(parts["+"]),
                " ".join(parts["="]),
            )
        )
    return mutations


def pattern_of(old):
    """Matches the text whatever its line breaks and indentation."""
    return re.compile(r"\s+".join(re.escape(word) for word in old.split()))


def check(mutations):
    problems = []
    for mutation in mutations:
        path = ROOT / mutation.path
        found = len(pattern_of(mutation.old).findall(path.read_text())) if path.exists() else 0
        if found != 1:
            problems.append(f"{mutation.number}: {mutation}: expected once in the file, got {found}")
        if mutation.room() not in TESTS_OF:
            problems.append(f"{mutation.number}: {mutation}: TESTS_OF lacks {mutation.room()}")
    return problems


def write_if_changed(path, text):
    if not path.exists() or path.read_bytes() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def copy_sources(mutations):
    source = WORK / "source"
    write_if_changed(WORK / "mutant.h", HEADER.encode())
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    for name in filter(None, listed):
        if not (ROOT / name).is_file():
            continue
        content = (ROOT / name).read_bytes()
        places = []
        for mutation in mutations:
            if mutation.path == name:
                match = pattern_of(mutation.old).search(content.decode())
                places.append((match.start(), match.end(), mutation))
        if places:
            text = content.decode()
            for begin, end, mutation in sorted(places, key=lambda place: -place[0]):
                text = text[:begin] + mutation.mutated() + text[end:]
            content = f'#include "{WORK / "mutant.h"}"\n{text}'.encode()
        write_if_changed(source / name, content)
        (source / name).chmod((ROOT / name).stat().st_mode)
    return source


def build(source, jobs):
    torch = subprocess.run(
        ["cmake", "-P", ROOT / "cmake" / "find_libtorch.cmake"], cwd=ROOT, capture_output=True, text=True
    )
    folder = re.search(r"LibTorch: (.*)", torch.stdout + torch.stderr)
    if not folder:
        sys.exit("mutate.py: LibTorch not found: run `sh cmake/bootstrap.sh test`")
    out = WORK / "build"
    configure = ["cmake", "-S", source, "-B", out, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={out}/bin", f"-DTorch_DIR={folder[1]}"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", out, f"-j{jobs}", "mini_tests"], check=True)
    return out / "bin" / "mini_tests"


def tags_of(folder):
    """All tags of the tests in a folder of tests/."""
    tags = set()
    for path in sorted((ROOT / "tests" / folder).rglob("*.test.cpp")):
        for listed in re.findall(r'TEST_CASE\([^{]*?"((?:\[[^\]"]+\])+)"\s*\)', path.read_text()):
            tags.update(re.findall(r"\[[^\]]+\]", listed))
    return sorted(tags - {"[slow]", "[.slow]", "[app]"})


def room_filter(room):
    tags = sorted({tag for folder in TESTS_OF[room] for tag in tags_of(folder)})
    return ",".join(f"{tag}~[slow]" for tag in tags)


def run_tests(program, number, tests, options, timeout):
    """The names of the tests that fail, and the seconds that the run takes."""
    environment = dict(os.environ, MINI_MUTANT=str(number), OMP_WAIT_POLICY="passive")
    start = time.monotonic()
    try:
        done = subprocess.run(
            [program, tests, "--reporter", "compact", *options],
            env=environment,
            cwd=program.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return ["(timed out)"], timeout
    seconds = time.monotonic() - start
    if done.returncode == 0:
        return [], seconds
    places = re.findall(r"^(\S+\.(?:cpp|h)):(\d+): failed", done.stdout, re.MULTILINE)
    names = []
    for path, line in places:
        name = name_of_test(path, int(line))
        if name not in names:
            names.append(name)
    return names or [f"(exit status {done.returncode})"], seconds


def name_of_test(path, line):
    """The name of the test case around a line; a helper's file and line if it has none."""
    name = f"{pathlib.Path(path).name}:{line}"
    try:
        lines = pathlib.Path(path).read_text().splitlines()[:line]
    except OSError:
        return name
    for first in range(len(lines) - 1, -1, -1):
        found = re.match(r'TEST_CASE\(\s*"?(.*)', "\n".join(lines[first : first + 2]))
        if lines[first].startswith("TEST_CASE("):
            text = "".join(lines[first : first + 3])
            quoted = re.search(r'"([^"]*)"', text)
            return quoted[1] if quoted else name
    return name


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only check that each place exists")
    parser.add_argument("--only", help="numbers, separated by commas, or a file or folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()

    mutations = read_mutations()
    problems = check(mutations)
    if problems:
        sys.exit("mutations.txt:\n" + "\n".join(problems))
    if arguments.check:
        print(f"{len(mutations)} mutations, each in one place")
        return
    chosen = mutations
    if arguments.only and re.fullmatch(r"[\d,]+", arguments.only):
        numbers = set(map(int, arguments.only.split(",")))
        chosen = [mutation for mutation in mutations if mutation.number in numbers]
    elif arguments.only:
        chosen = [mutation for mutation in mutations if mutation.path.startswith(arguments.only)]

    program = build(copy_sources(mutations), arguments.jobs)
    seconds_of_room = {}
    rooms = sorted({mutation.room() for mutation in chosen})
    failed, seconds_of_all = run_tests(program, 0, "~[slow]", [], 3600)
    if failed:
        sys.exit(f"without a mutation, these tests fail: {failed}")
    for room in rooms:
        failed, seconds_of_room[room] = run_tests(program, 0, room_filter(room), [], 3600)
        if failed:
            sys.exit(f"without a mutation, these tests of {room} fail: {failed}")

    def meet(mutation):
        room = mutation.room()
        failed, _ = run_tests(
            program, mutation.number, room_filter(room), [], 20 + 10 * seconds_of_room[room]
        )
        if not failed:
            failed, _ = run_tests(
                program, mutation.number, "~[slow]", ["--abort"], 20 + 10 * seconds_of_all
            )
        return mutation, failed

    survivors = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for mutation, failed in pool.map(meet, chosen):
            noticed = f"{len(failed):3} {'; '.join(failed[:3])}" if failed else "  0 SURVIVES"
            print(f"{mutation.number:3} {mutation}\n    {noticed}", flush=True)
            if not failed:
                survivors.append(mutation)
    print(f"\n{len(chosen)} mutations, {len(survivors)} survive")
    for mutation in survivors:
        print(f"{mutation.number:3} {mutation}\n    {mutation.explanation or 'NOT EXPLAINED'}")
    sys.exit(any(not mutation.explanation for mutation in survivors))


if __name__ == "__main__":
    main()
