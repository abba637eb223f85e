#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Breaks the library in one place at a time and tells which tests notice.

    tests/mutations/mutate.py --check            only checks that each place exists
    tests/mutations/mutate.py                    all mutations
    tests/mutations/mutate.py --only 3,17        these mutations
    tests/mutations/mutate.py --only src/files   the mutations of this file or folder
    tests/mutations/mutate.py --quick            stops at the first test that notices a mutation

mutations.txt lists the places. One build contains all mutations. The script copies the sources to
build/mutations/source and replaces each place by a choice at run time: the mutation acts if the
environment variable MINI_MUTANT contains its id. Programs that tests start inherit the variable.

For each mutation the script runs the tests of the mutated room. If all of them pass, it runs the
other tests up to the first failure. A run that takes ten times as long as without a mutation counts
as a failure. If no test fails, the mutation survives. The exit status is 1 if a mutation survives
that mutations.txt does not explain.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import html
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "mutations"

# The folders of tests/ whose tests cover a file or a folder. The longest path counts.
TESTS_OF = {
    "src/kernels": ["kernels", "attention"],
    "src/kernels/block_kernel.cpp": ["modules"],
    "src/attention": ["attention", "kernels"],
    "src/modules": ["modules"],
    "src/training": ["training"],
    "src/files": ["files"],
    "src/figures": ["figures"],
    "apps/common": ["apps/lesson"],
    "apps/lesson": ["apps/lesson"],
    "apps/gpt": ["apps/gpt"],
}

# Slow tests take minutes each. The tests of the rooms read the sources, which the script changes.
LEFT_OUT = "~[.]~[rooms]"

HEADER = """#pragma once
#include <cstdlib>
namespace mini_mutations {
inline const long id = [] {
  const char* text = std::getenv("MINI_MUTANT");
  return text == nullptr ? 0L : std::atol(text);
}();
}  // namespace mini_mutations
#define MINI_MUTANT(id_) (::mini_mutations::id == (id_))
"""


def pattern_of(text):
    """Matches the text whatever its line breaks and indentation."""
    return re.compile(r"\s+".join(re.escape(word) for word in text.split()))


@dataclasses.dataclass
class Mutation:
    number: int
    path: str
    old: str
    new: str
    explanation: str  # why no test can notice the mutation, or ""

    def __str__(self):
        old = " ".join(self.old.split())
        return f"{self.path}: {old if len(old) <= 70 else old[:67] + '...'}"

    @property
    def id(self):
        """Depends on the mutation alone, so that a new mutation does not rebuild the others."""
        return zlib.crc32("\0".join([self.path, self.old, self.new]).encode())

    def choice(self):
        if self.old.endswith((";", "}")):
            return f"if (MINI_MUTANT({self.id})) {{ {self.new} }} else {{ {self.old} }}"
        return f"(MINI_MUTANT({self.id}) ? ({self.new}) : ({self.old}))"

    def place(self, text):
        match = pattern_of(self.old).search(text)
        return match.start(), match.end()


def read_mutations():
    """A block has the path, lines "- old", lines "+ new", and perhaps lines "= explanation"."""
    mutations = []
    for block in (HERE / "mutations.txt").read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        parts = {sign: [line[2:] for line in lines[1:] if line[0] == sign] for sign in "-+="}
        old, new, explanation = "\n".join(parts["-"]), "\n".join(parts["+"]), " ".join(parts["="])
        if sum(map(len, parts.values())) != len(lines) - 1 or not old or not new:
            sys.exit(f"mutations.txt: expected a path and lines with '- ', '+ ' or '= ', got\n{block}")
        mutations.append(Mutation(len(mutations) + 1, lines[0], old, new, explanation))
    return mutations


def folders_of_tests(path):
    found = [known for known in TESTS_OF if path == known or path.startswith(known + "/")]
    return TESTS_OF[max(found, key=len)] if found else []


def problems_of(mutations):
    """One line for each mutation that does not fit the sources."""
    problems = []
    places = collections.defaultdict(list)
    for mutation in mutations:
        path = ROOT / mutation.path
        text = path.read_text() if path.is_file() else ""
        found = len(pattern_of(mutation.old).findall(text))
        if not path.is_file():
            problems.append(f"{mutation.number}: {mutation}: there is no such file")
        elif found != 1:
            problems.append(f"{mutation.number}: {mutation}: expected the text once, got {found}")
        elif not folders_of_tests(mutation.path):
            problems.append(f"{mutation.number}: {mutation}: TESTS_OF in mutate.py has no such room")
        else:
            places[mutation.path].append((*mutation.place(text), mutation))
    for of_file in places.values():
        of_file.sort(key=lambda place: place[:2])
        for (_, end, before), (begin, _, after) in zip(of_file, of_file[1:]):
            if begin < end:
                problems.append(f"{after.number}: {after}: overlaps {before.number}: {before}")
    return problems


# ---- The build


def mutated(text, mutations):
    for mutation in sorted(mutations, key=lambda m: m.place(text), reverse=True):
        begin, end = mutation.place(text)
        text = text[:begin] + mutation.choice() + text[end:]
    return f'#include "{WORK / "mutant.h"}"\n{text}'


def write_if_changed(path, content):
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def copy_sources(mutations):
    source = WORK / "source"
    of_file = collections.defaultdict(list)
    for mutation in mutations:
        of_file[mutation.path].append(mutation)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = {name for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    write_if_changed(WORK / "mutant.h", HEADER.encode())
    for name in sorted(names):
        content = (ROOT / name).read_bytes()
        if name in of_file:
            content = mutated(content.decode(), of_file[name]).encode()
        write_if_changed(source / name, content)
        shutil.copymode(ROOT / name, source / name)
    for path in source.rglob("*"):
        if path.is_file() and str(path.relative_to(source)) not in names:
            path.unlink()
    return source


def build(source, jobs):
    find = ["cmake", "-P", ROOT / "cmake" / "find_libtorch.cmake"]
    found = subprocess.run(find, cwd=ROOT, capture_output=True, text=True)
    torch = re.search(r"LibTorch: (.*)", found.stdout + found.stderr)
    if not torch:
        sys.exit("mutate.py: LibTorch not found: run `sh cmake/bootstrap.sh test`")
    folder = WORK / "build"
    configure = ["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={folder}/bin", f"-DTorch_DIR={torch[1]}"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", folder, f"-j{jobs}", "mini_tests"], check=True)
    return folder / "bin" / "mini_tests"


# ---- The runs


def tags_of(path):
    """The tags of the tests in a file, without [app], which all programs share."""
    tags = set()
    for listed in re.findall(r'TEST_CASE\([^{]*?"((?:\[[^\]"]+\])+)"\s*\)', path.read_text()):
        tags.update(re.findall(r"\[[^\].]+\]", listed))
    return tags - {"[app]"}


def tests_with(tags):
    return ",".join(tag + LEFT_OUT for tag in sorted(tags))


def tests_of_room(path):
    files = [
        file
        for folder in folders_of_tests(path)
        for file in (ROOT / "tests" / folder).rglob("*.test.cpp")
    ]
    return tests_with(set().union(*map(tags_of, files)))


def tests_of_file(path):
    """The tests in the file of tests/ that has the name of the mutated file, or ""."""
    place = pathlib.Path(path)
    folder = place.parent.relative_to("src") if path.startswith("src/") else place.parent
    file = ROOT / "tests" / folder / (place.stem.removesuffix("-inl") + ".test.cpp")
    return tests_with(tags_of(file)) if file.exists() else ""


def failures_in(report, status):
    """The names of the tests that failed, from the XML report of Catch2."""
    failed, current = [], None
    for name, success in re.findall(
        r'<TestCase name="([^"]*)"|<OverallResult success="(\w+)"', report
    ):
        if name:
            current = html.unescape(name)
        else:
            if success == "false":
                failed.append(current)
            current = None
    if current is not None:  # the report ends within a test
        failed.append(current)
    return failed or [f"(exit status {status})"]


def run(program, mutation, tests, timeout=None, abort=False):
    """The names of the tests that fail, and the seconds of the run."""
    command = [program, tests, "--reporter", "xml", *(["--abort"] if abort else [])]
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutate-") as scratch, tempfile.TemporaryFile() as output:
        os.chmod(scratch, 0o755)  # some tests give up root's rights
        environment = dict(
            os.environ,
            MINI_MUTANT=str(mutation.id if mutation else 0),
            OMP_WAIT_POLICY="passive",
            TMPDIR=scratch,
        )
        # In a session of its own, so that programs that the tests started end with them.
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=program.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        timed_out = process.poll() is None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        output.seek(0)
        report = output.read().decode(errors="replace")
    seconds = time.monotonic() - start
    if timed_out:
        return [f"(more than {timeout:.0f} s)"], seconds
    return failures_in(report, process.returncode) if process.returncode else [], seconds


class Runner:
    def __init__(self, program, quick):
        self.program = program
        self.quick = quick
        self.seconds = {}  # of each set of tests without a mutation
        self.lock = threading.Lock()

    def stages(self, mutation):
        """The sets of tests that a mutation meets one after the other."""
        room = tests_of_room(mutation.path)
        own = tests_of_file(mutation.path)
        return ([own] if self.quick and own else []) + [room, LEFT_OUT]

    def seconds_without_mutation(self, tests):
        """Also checks that the tests pass then. Measured when the tests are first needed."""
        with self.lock:
            if tests not in self.seconds:
                failed, self.seconds[tests] = run(self.program, None, tests)
                if failed:
                    sys.exit(f"mutate.py: these tests fail without a mutation: {'; '.join(failed)}")
            return self.seconds[tests]

    def noticed_by(self, mutation):
        for tests in self.stages(mutation):
            failed, _ = run(
                self.program,
                mutation,
                tests,
                timeout=20 + 10 * self.seconds_without_mutation(tests),
                abort=self.quick or tests == LEFT_OUT,
            )
            if failed:
                return failed
        return []


def chosen(mutations, only):
    if not only:
        return mutations
    if re.fullmatch(r"[\d,]+", only):
        numbers = {int(number) for number in only.split(",")}
        found = [mutation for mutation in mutations if mutation.number in numbers]
    else:
        found = [mutation for mutation in mutations if mutation.path.startswith(only)]
    if not found:
        sys.exit(f"--only: expected numbers or a path of mutations.txt, got '{only}'")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only check that each place exists")
    parser.add_argument("--only", help="numbers separated by commas, or a file or folder")
    parser.add_argument("--quick", action="store_true", help="stop at the first test that notices")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    arguments = parser.parse_args()

    mutations = read_mutations()
    problems = problems_of(mutations)
    if problems:
        sys.exit("mutations.txt does not fit the sources:\n" + "\n".join(problems))
    if arguments.check:
        print(f"{len(mutations)} mutations, each in one place")
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    start = time.monotonic()
    selected = chosen(mutations, arguments.only)
    runner = Runner(build(copy_sources(mutations), arguments.jobs), arguments.quick)

    survivors = []
    print("number  noticed by  place and tests", flush=True)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for mutation, failed in zip(selected, pool.map(runner.noticed_by, selected)):
            count = f"{len(failed)}+" if arguments.quick and failed else len(failed)
            names = f"\n{'':20}{'; '.join(failed[:3])}" if failed else ""
            print(f"{mutation.number:6} {count:>11}  {mutation}{names}", flush=True)
            if not failed:
                survivors.append(mutation)
    minutes = (time.monotonic() - start) / 60
    print(f"\n{len(selected)} mutations, {len(survivors)} survive, {minutes:.0f} minutes")
    for mutation in survivors:
        print(f"{mutation.number:6}  {mutation}\n{'':8}{mutation.explanation or 'NOT EXPLAINED'}")
    sys.exit(any(not mutation.explanation for mutation in survivors))


if __name__ == "__main__":
    main()
