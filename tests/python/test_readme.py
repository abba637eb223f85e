# SPDX-License-Identifier: MIT
"""What the README shows of Python, as a reader would go it.

MINI_CONTINUE_GPT2 and MINI_MOVE_WEIGHTS are the programs that it quotes, built with the tests.
MINI_LIBRARY is the library, MINI_GENERATE_TEXT the app.
"""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import torch
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).parent
README = HERE.parent.parent / "README.md"
EXAMPLES = README.parent / "examples"


def blocks(title):
    """The quoted blocks of a section, each its language and its text."""
    section = README.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^```(\w*)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


class Readme(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def test_weights_go_to_cpp_and_back(self):
        (to_cpp, cpp, from_cpp, _) = blocks("Weights to and from Python")
        self.assertEqual([b[0] for b in (to_cpp, cpp, from_cpp)], ["python", "cpp", "python"])
        self.assertEqual(cpp[1], (EXAMPLES / "move_weights.cpp").read_text())

        reader = {}
        exec(to_cpp[1], reader)
        expected = reader["model"](torch.ones(1, 2)).item()
        printed = subprocess.check_output(os.environ["MINI_MOVE_WEIGHTS"], text=True)
        self.assertAlmostEqual(float(printed), expected, places=4)
        for parameter in reader["model"].parameters():
            parameter.data.zero_()
        exec(from_cpp[1], reader)
        self.assertAlmostEqual(reader["model"](torch.ones(1, 2)).item(), expected, places=6)
        self.assertEqual(
            load_file("from_cpp.safetensors").keys(), load_file("from_python.safetensors").keys()
        )

    def test_a_gpt2_gives_the_same_tokens_in_cpp(self):
        to_cpp, tokens, cpp, cpp_tokens, app, from_cpp = blocks("From GPT-2 in Python to C++")
        self.assertEqual(cpp[1], (EXAMPLES / "continue_gpt2.cpp").read_text())

        reader = {}
        exec(to_cpp[1].replace("print(", "printed = ("), reader)
        self.assertEqual(reader["printed"], ast.literal_eval(tokens[1]))
        printed = subprocess.check_output(os.environ["MINI_CONTINUE_GPT2"], text=True)
        self.assertEqual(printed, cpp_tokens[1])
        self.assertEqual(list(map(int, printed.split())), reader["printed"])
        command, output = app[1].split("\n", 1)
        arguments = command.removeprefix("$ build/release/bin/generate_text ").split()
        generated = subprocess.check_output(
            [os.environ["MINI_GENERATE_TEXT"], *arguments], text=True
        )
        self.assertEqual(generated, output)

        exec(from_cpp[1], reader)
        for name, tensor in reader["model"].state_dict().items():
            self.assertTrue(torch.equal(tensor, reader["again"].state_dict()[name]), name)

    def test_one_training_step_with_the_operator(self):
        program, output = blocks("The operator in Python")[:2]
        self.assertEqual(program[1], (EXAMPLES / "train_step.py").read_text())
        command, quoted = output[1].split("\n", 1)
        self.assertIn("python -W ignore examples/train_step.py build/release/lib", command)
        printed = subprocess.check_output(
            [sys.executable, EXAMPLES / "train_step.py", os.environ["MINI_LIBRARY"]], text=True
        )
        self.assertEqual(*(re.sub(r"[0-9.]+\n", "", text) for text in (printed, quoted)))


if __name__ == "__main__":
    unittest.main()
