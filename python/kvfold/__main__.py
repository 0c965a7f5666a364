"""Becomes the command: python -m kvfold train --help."""
import os
import shutil
import sys

from ._library import check_program

program = check_program() or shutil.which("kvfold")
if not program:
    sys.exit("kvfold: the command is neither in the package, nor beside the library, nor in PATH")
os.execv(program, [program, *sys.argv[1:]])
