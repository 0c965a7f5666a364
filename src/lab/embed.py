"""Makes a C source of text files: embed.py OUT.c NAME=FILE...

Each FILE becomes `const char NAME[]`, its bytes and a NUL: read and edited as what it is, and part
of the library all the same. Bytes, not a string literal: C11 compilers need take no more than 4095
characters of one."""
import sys


def array(name, path):
    with open(path, "rb") as file:
        data = file.read()
    if b"\0" in data or b"</s" in data.lower():
        sys.exit(f"{path}: holds a NUL, or would end the element that it stands in")
    rows = [", ".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24)]
    return f"const char {name}[] = {{\n    " + ",\n    ".join(rows + ["0"]) + "};\n"


def main():
    out, items = sys.argv[1], [item.split("=", 1) for item in sys.argv[2:]]
    with open(out, "w", encoding="ascii") as file:
        file.write('#include "report_priv.h"\n\n')
        file.write("\n".join(array(name, path) for name, path in items))


main()
