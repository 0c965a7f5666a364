"""Makes a C source of the server's page: web_page.py OUT.c VERSION PAGE.html SCRIPT.js STYLE.css...

The page becomes one document, with its style and script inside, and beside it the Content-Security-
Policy that allows these two by their hashes (SHA-256, W3C CSP 3) and this server for requests."""
import base64
import hashlib
import sys


def text_of(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if not path.endswith(".html") and "</s" in text.lower():
        sys.exit(f"{path}: would end the element that it stands in")
    return text


def hash_of(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def array(name, text):
    data = text.encode()
    rows = [", ".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24)]
    return f"const char {name}[] = {{\n    " + ",\n    ".join(rows + ["0"]) + "};\n"


def main():
    out, version, page, script = sys.argv[1:5]
    script, style = text_of(script), "".join(text_of(path) for path in sys.argv[5:])
    page = text_of(page).replace("@VERSION@", version).replace("@STYLE@", style).replace("@SCRIPT@", script)
    policy = ("default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
              f"frame-ancestors 'none'; script-src {hash_of(script)}; style-src {hash_of(style)}")
    with open(out, "w", encoding="ascii") as file:
        file.write('#include "web_page.h"\n\n')
        file.write(array("kvf__web_page", page) + "\n" + array("kvf__web_policy", policy))


main()
