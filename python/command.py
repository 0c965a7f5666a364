#!python
# The command `kvfold` of the wheel: becomes the program that lies in the package, which it does not import.
import importlib.util
import os
import sys

folder = importlib.util.find_spec("kvfold").submodule_search_locations[0]
program = os.path.join(folder, "bin", "kvfold")
os.execv(program, [program] + sys.argv[1:])
