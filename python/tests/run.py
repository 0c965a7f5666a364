"""Runs the tests of this folder; without numpy they are skipped (77). With names (test_train ...) these alone.

KVFOLD_COMMAND and KVFOLD_MAKE_TINY are programs of the build, by default in ../../build. The package is the installed one, with
KVFOLD_LIBRARY that of this tree; KVF_PYTHON is then a Python that has more packages (torch, transformers, peft).
"""
import os
import sys
import unittest
from pathlib import Path

if "KVF_PYTHON" in os.environ and "KVFOLD_LIBRARY" in os.environ:
    program = os.environ.pop("KVF_PYTHON")
    os.execv(program, [program, *sys.argv])
here = Path(__file__).resolve().parent
try:
    import numpy  # noqa: F401
except ImportError:
    print("no numpy")
    sys.exit(77)
sys.path.insert(0, str(here))
if "KVFOLD_LIBRARY" in os.environ:
    sys.path.insert(0, str(here.parent))
loader = unittest.TestLoader()
suite = loader.loadTestsFromNames(sys.argv[1:]) if sys.argv[1:] else loader.discover(str(here))
result = unittest.TextTestRunner(verbosity=2).run(suite)
sys.exit(not result.wasSuccessful())
