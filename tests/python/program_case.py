# SPDX-License-Identifier: MIT
"""What tests that call one of the programs here share."""

import os
import pathlib
import subprocess
import tempfile
import unittest


class ProgramTest(unittest.TestCase):
    """A folder for each test, and the program that the environment variable `program` names."""

    program: str

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def path(self, name):
        return str(self.folder / name)

    def run_tool(self, *arguments, status=0):
        """What the program prints."""
        tool = [os.environ[self.program], *arguments]
        done = subprocess.run(tool, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr
