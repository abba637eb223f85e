# SPDX-License-Identifier: MIT
"""Compares files and weights with Python's safetensors package and torch.nn.

The program MINI_TENSOR_FILES is tensor_files.cpp, built with the tests.
"""

import json
import random
import struct
import unittest

import torch
from program_case import ProgramTest
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file, save_model
from torch import nn

TYPES = [
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32,
    torch.uint64, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2,
]  # fmt: skip


class Tree(nn.Module):
    """The same module as Tree in tensor_files.cpp."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 6, bias=False))
        self.conv = nn.Conv1d(6, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, tokens):
        x = self.body(self.embedding(tokens))
        return self.scale * self.norm(self.conv(x.transpose(1, 2)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


def file_bytes(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def bits(tensor):
    """The bytes of the elements. NaNs and types without arithmetic can be compared as bytes."""
    return tensor.contiguous().flatten().view(torch.uint8).tolist() if tensor.numel() else []


class TensorFiles(ProgramTest):
    program = "MINI_TENSOR_FILES"

    def assert_same(self, actual, expected):
        self.assertEqual(actual.keys(), expected.keys())
        for name, tensor in expected.items():
            with self.subTest(name):
                self.assertEqual(actual[name].dtype, tensor.dtype)
                self.assertEqual(actual[name].shape, tensor.shape)
                self.assertEqual(bits(actual[name]), bits(tensor))

    def test_tensors_of_every_type_are_copied_bit_for_bit(self):
        tensors = {}
        for dtype in TYPES:
            width = torch.empty((), dtype=dtype).element_size()
            noise = torch.randint(0, 256, (15 * width,), dtype=torch.uint8)
            values = noise > 99 if dtype == torch.bool else noise.view(dtype)
            tensors[str(dtype)] = values.view(3, 5)
        tensors["scalar"] = torch.tensor(3.5)
        tensors["empty"] = torch.empty(0)
        tensors["no columns"] = torch.empty(2, 0, dtype=torch.int64)
        tensors['grüße "\\\n'] = torch.tensor([float("nan"), float("inf"), -0.0])
        metadata = {"format": "pt", "größe": "line\nbreak", "": ""}
        save_file(tensors, self.path("in"), metadata=metadata)
        self.run_tool("copy", self.path("in"), self.path("out"))
        self.assert_same(load_file(self.path("out")), tensors)
        with safe_open(self.path("out"), "pt") as file:
            self.assertEqual(file.metadata(), metadata)

    def test_a_file_without_tensors_is_copied(self):
        save_file({}, self.path("in"))
        self.run_tool("copy", self.path("in"), self.path("out"))
        self.assertEqual(load_file(self.path("out")), {})

    def test_cpp_loads_weights_that_python_saved(self):
        tree = Tree()
        tree(torch.randint(11, (5, 7)))  # in training mode, so that the norm updates its statistics
        save_file(tree.state_dict(), self.path("weights"))
        tokens = torch.randint(11, (2, 9))
        save_file({"tokens": tokens}, self.path("input"))
        self.run_tool("load-tree", *map(self.path, ("weights", "input", "output")))
        output = load_file(self.path("output"))["output"]
        torch.testing.assert_close(output, tree.eval()(tokens))

    def test_python_loads_weights_that_cpp_saved(self):
        tokens = torch.randint(11, (2, 9))
        save_file({"tokens": tokens}, self.path("input"))
        self.run_tool("save-tree", *map(self.path, ("weights", "input", "output")))
        tree = Tree()
        tree.load_state_dict(load_file(self.path("weights")), strict=True)
        self.assertEqual(tree.norm.num_batches_tracked, 1)
        output = load_file(self.path("output"))["output"]
        torch.testing.assert_close(tree.eval()(tokens), output)

    def test_load_state_dict_names_tensors_that_do_not_fit(self):
        weights = Tree().state_dict()
        weights["body.0.weight"] = torch.zeros(8, 7)
        weights["head.weight"] = weights.pop("conv.bias")
        save_file(weights, self.path("weights"))
        save_file({"tokens": torch.zeros(1, 1, dtype=torch.int64)}, self.path("input"))
        message = self.run_tool(
            "load-tree", *map(self.path, ("weights", "input", "output")), status=1
        )
        self.assertIn("body.0.weight: wrong shape, expected [8, 6], got [8, 7]", message)
        self.assertIn("unexpected: head.weight", message)
        self.assertIn("missing: conv.bias [4]", message)

    def test_a_tied_weight_is_loaded_from_one_name_and_saved_under_both(self):
        tied = Tied()
        save_model(tied, self.path("once"))  # the package stores a shared tensor once
        self.assertEqual(len(load_file(self.path("once"))), 1)
        self.run_tool("load-tied", self.path("once"), self.path("both"))
        self.assert_same(load_file(self.path("both")), tied.state_dict())
        Tied().load_state_dict(load_file(self.path("both")), strict=True)

    def test_both_readers_refuse_wrong_shapes_and_offsets(self):
        def one(shape, offsets, dtype="F32"):
            return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}

        def two(a, b):
            return {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": a},
                "b": {"dtype": "F32", "shape": [2], "data_offsets": b},
            }

        for header, size in [
            (two([0, 8], [4, 12]), 12),
            (two([0, 8], [12, 20]), 20),
            (one([2], [8, 0]), 8),
            (one([2], [0, 8]), 4),
            (one([2], [0, 8]), 12),
            (one([3], [0, 8]), 8),
            (one([2**32, 2**32], [0, 0]), 0),
            (one([2**63 - 1, 2], [0, 0], "U8"), 0),
            (one([-1], [0, 4]), 4),
            (one([2.5], [0, 8]), 8),
            (one("2", [0, 8]), 8),
            (one([2], [0]), 8),
            (one([2], [0, 4, 8]), 8),
        ]:
            with self.subTest(header):
                (self.folder / "bad").write_bytes(file_bytes(header, bytes(size)))
                with self.assertRaises(SafetensorError):
                    load_file(self.path("bad"))
                message = self.run_tool("copy", self.path("bad"), self.path("out"), status=1)
                self.assertIn("tensor '", message)

    def test_both_readers_return_the_same_tensors_of_damaged_files(self):
        """Of 2000 damaged files, the package must read every file that the library reads."""
        good = {
            "weight": torch.rand(2, 3),
            "half": torch.rand(5).to(torch.bfloat16),
            "count": torch.tensor(7),
            "empty": torch.empty(2, 0),
        }
        save_file(good, self.path("good"), metadata={"format": "pt"})
        content = (self.folder / "good").read_bytes()
        header_size = 8 + struct.unpack("<Q", content[:8])[0]
        pieces = [b"0", b"9", b" ", b"{", b"}", b'"', b",", b"-", b"\0", b"\xff", b"F16", b"[]"]
        (self.folder / "damaged").mkdir()
        chance = random.Random(42)
        for i in range(2000):
            damaged = bytearray(content)
            for _ in range(chance.randint(1, 2)):
                at = chance.randrange(header_size)
                damaged[at : at + chance.randint(0, 2)] = chance.choice(pieces)
            (self.folder / "damaged" / str(i)).write_bytes(damaged)
        refused = self.run_tool("copy-all", self.path("damaged")).splitlines()
        copies = list((self.folder / "damaged").glob("*.copy"))
        self.assertEqual(len(refused) + len(copies), 2000)
        self.assertGreater(len(copies), 20)
        for copy in copies:
            with self.subTest(copy.stem):
                self.assert_same(load_file(copy), load_file(copy.with_suffix("")))


if __name__ == "__main__":
    unittest.main()
