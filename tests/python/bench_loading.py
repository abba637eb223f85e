# SPDX-License-Identifier: MIT
"""Times load_safetensors against Python's safetensors: load a file of 500 MB and sum its tensors.

    .venv/bin/python tests/python/bench_loading.py build/release/bin/tensor_files

The two run alternately with the file in the page cache. Each round compares the sums before it
counts. The output gives medians. The exit status is 1 if the package needs less than 1 / 1.2 of the
library's time, or if the library copies the file into memory.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

# Idle threads of one side must not spin on the processors that the other side uses.
os.environ["OMP_WAIT_POLICY"] = "passive"

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

ROUNDS = 15
TENSORS = 50
ELEMENTS = 2_500_000  # float32: 10 MB per tensor
LEAST_RATIO = 1 / 1.2
LARGEST_GROWTH = 0.1  # of the file's size


def python_turn(path):
    start = time.perf_counter()
    tensors = load_file(path)
    sums = {name: tensor.sum().item() for name, tensor in tensors.items()}
    return time.perf_counter() - start, sums


def our_turn(process, path):
    print(path, file=process.stdin, flush=True)
    seconds, growth, *sums = process.stdout.readline().split()
    names = [f"layer.{i:02}.weight" for i in range(TENSORS)]  # sorted by name
    return float(seconds), int(growth), dict(zip(names, map(float, sums), strict=True))


def cpu_name():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "?")


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.safetensors"
        generator = torch.Generator().manual_seed(42)
        save_file(
            {
                f"layer.{i:02}.weight": torch.rand(ELEMENTS, generator=generator)
                for i in range(TENSORS)
            },
            path,
        )
        process = subprocess.Popen(
            [sys.argv[1], "sum"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        ours, theirs, growths = [], [], []
        for _ in range(ROUNDS + 1):
            seconds, growth, our_sums = our_turn(process, path)
            python_seconds, python_sums = python_turn(path)
            if our_sums != python_sums:
                sys.exit("the sums differ")
            ours.append(seconds)
            theirs.append(python_seconds)
            growths.append(growth)
        process.stdin.close()
        process.wait()
        size = path.stat().st_size

    ours, theirs = ours[1:], theirs[1:]  # the first round warms up
    ratio = statistics.median(theirs) / statistics.median(ours)
    capability = torch.backends.cpu.get_cpu_capability()
    print(f"CPU              {cpu_name()}, {capability}, {torch.get_num_threads()} threads")
    print(f"file             {size / 1e6:.0f} MB, {TENSORS} tensors")
    for name, times in (("this library", ours), ("safetensors", theirs)):
        print(
            f"{name:16} median {statistics.median(times):.3f} s, "
            f"from {min(times):.3f} to {max(times):.3f} s, {len(times)} rounds"
        )
    print(f"ratio            {ratio:.2f}, safetensors' time / ours (at least {LEAST_RATIO:.2f})")
    print(f"private memory   grew by {max(growths) / 1e6:.1f} MB at most")
    if ratio < LEAST_RATIO or max(growths) > LARGEST_GROWTH * size:
        sys.exit(1)


if __name__ == "__main__":
    main()
