# SPDX-License-Identifier: MIT
"""The README's way of a model's weights from Python to C++ and back, as a reader would go it.

MINI_MOVE_WEIGHTS is move_weights.cpp, built with the tests.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import torch
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).parent
README = HERE.parent.parent / "README.md"


class Readme(unittest.TestCase):
    def test_weights_go_to_cpp_and_back(self):
        section = README.read_text().split("## Weights to and from Python\n")[1].split("\n## ")[0]
        blocks = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
        self.assertEqual([language for language, _ in blocks], ["python", "cpp", "python"])
        to_cpp, cpp, from_cpp = (text for _, text in blocks)
        self.assertEqual(cpp, (HERE / "move_weights.cpp").read_text())

        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            reader = {}
            exec(to_cpp, reader)
            expected = reader["model"](torch.ones(1, 2)).item()
            printed = subprocess.check_output(os.environ["MINI_MOVE_WEIGHTS"], text=True)
            self.assertAlmostEqual(float(printed), expected, places=4)
            for parameter in reader["model"].parameters():
                parameter.data.zero_()
            exec(from_cpp, reader)
            self.assertAlmostEqual(reader["model"](torch.ones(1, 2)).item(), expected, places=6)
            self.assertEqual(
                load_file("from_cpp.safetensors").keys(),
                load_file("from_python.safetensors").keys(),
            )
            os.chdir(before)


if __name__ == "__main__":
    unittest.main()
