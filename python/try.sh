#!/bin/sh
# Installs the package for Python in a new environment and runs the tests of python/tests with it, where nothing of this tree is in
# reach. KVF_PYTHON: a Python whose packages (torch, transformers) the tests use.
# Usage: try.sh PACKAGE MAKE_TINY FOLDER, where PACKAGE is what pip installs and FOLDER will have the environment
set -eu
cd "$(dirname "$0")/.."
top=$PWD package=$(realpath "$1") make_tiny=$(realpath "$2") folder=$3

# count FILE: the sums of unittest as meson writes its own
count() {
    awk -F'[=,) ]+' '/^Ran / {ran = $2}
        /^(OK|FAILED)/ {for (i = 1; i < NF; i++) if ($i ~ /^\(?skipped$/) skip = $(i + 1)
                        else if ($i ~ /^\(?(failures|errors)$/) bad += $(i + 1)}
        END {printf "Ok: %d\nFail: %d\nSkipped: %d\n", ran - bad - skip, bad, skip}' "$1"
}

printf '\n== testing %s\n' "${package#"$top/"}"
rm -rf "$folder"
python3 -m venv "$folder"
cd "$folder"
[ -z "${KVF_PYTHON:-}" ] || # its packages come after those of the environment
    "$KVF_PYTHON" -c 'import site; print(site.getsitepackages()[0])' \
        >"$(bin/python -c 'import site; print(site.getsitepackages()[0])')/kvf_python.pth"
bin/pip install --disable-pip-version-check "$package" >install.log 2>&1 || { tail -n 40 install.log >&2; exit 1; }
unset KVFOLD_LIBRARY KVF_PYTHON
bin/kvfold --version
status=0
KVFOLD_COMMAND=$PWD/bin/kvfold KVFOLD_MAKE_TINY=$make_tiny bin/python "$top/python/tests/run.py" >tests.log 2>&1 || status=$?
[ $status -eq 0 ] || { cat tests.log >&2; exit 1; }
count tests.log
