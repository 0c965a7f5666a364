"""Writes the libraries inside a wheel into its metadata, and a list of them (CycloneDX 1.6): parts.py VERSION METADATA SBOM <PARTS

A line of PARTS is a name, a version and a licence, separated by tabs. auditwheel makes a list too, which lacks what is linked
statically."""
import json
import sys
from pathlib import Path

version, metadata, sbom = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
rows = [line.rstrip("\n").split("\t") for line in sys.stdin]

licences = sorted({"Apache-2.0", *(one for row in rows for one in row[2].split(" AND "))})
files = "".join(f"License-File: NOTICE.{row[0]}\n" for row in rows)
text = metadata.read_text()
assert "License-Expression: Apache-2.0\nLicense-File: LICENSE\n" in text
metadata.write_text(text.replace("License-Expression: Apache-2.0\nLicense-File: LICENSE\n",
                                 f"License-Expression: {' AND '.join(licences)}\nLicense-File: LICENSE\n{files}"))


def part(name, version, licence, kind="library"):
    return {"type": kind, "bom-ref": f"{name}@{version}", "name": name, "version": version, "licenses": [{"expression": licence}]}


whole, parts = part("kvfold", version, "Apache-2.0", "application"), [part(*row) for row in rows]
sbom.write_text(json.dumps({
    "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": whole}, "components": parts,
    "dependencies": [{"ref": whole["bom-ref"], "dependsOn": [p["bom-ref"] for p in parts]}],
}, indent=1) + "\n")
