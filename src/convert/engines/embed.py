"""Makes a C source of text files, by their names: embed.py TEXT... OUT.c"""
import os
import sys

*paths, out = sys.argv[1:]
with open(out, "w", encoding="ascii") as file:
    file.write('#include "export.h"\n\n')
    for i, path in enumerate(paths):
        with open(path, "rb") as text:
            file.write(f"static const char text{i}[] = {{{', '.join(map(str, text.read()))}, 0}};\n")
    rows = [f'{{"{os.path.basename(path)}", text{i}}}' for i, path in enumerate(paths)]
    file.write(f"const kvf__pair kvf__engine_texts[] = {{{', '.join(rows)}, {{0, 0}}}};\n")
