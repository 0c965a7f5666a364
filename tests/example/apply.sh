#!/bin/sh
# Follows the examples of docs/contributing.md literally. Copies the files that they change, adds
# the lines of the page (the method) and the patches in this folder (all others), and leaves the
# command's sources in OUT_DIR.
# Usage: apply.sh SOURCE_ROOT OUT_DIR
set -eu
source=$1
out=$2
page=$source/docs/contributing.md
tree=$out/tree
rm -rf "$tree"
files=$(sed -n 's/^--- a\///p' "$source"/tests/example/*.patch | sort -u)
for file in $files src/options/method.h src/options/method.c encoder/encoder_priv.h encoder/encoder.c; do
    mkdir -p "$tree/$(dirname "$file")"
    cp "$source/$file" "$tree/$file"
done

# line PATTERN: the only matching line of the page, without the backquotes.
line() {
    found=$(grep -E "$1" "$page" | sed 's/^ *`//; s/`$//')
    [ "$(printf '%s\n' "$found" | wc -l)" -eq 1 ] && [ -n "$found" ] && printf '%s\n' "$found" && return
    echo "$page: want one line like $1" >&2
    exit 1
}

# The method. 1. The row of the list
row=$(line '^ *`X\("tied"')
awk -v row="    $row" '/^    X\("head"/ {sub(/$/, " \\"); print; print row; next} {print}' \
    "$source/src/options/method.h" >"$tree/src/options/method.h"

# 2. The kind: the block of code after "enc_tied.c"
{
    printf '#include "encoder_priv.h"\n\n#include <string.h>\n\n'
    awk '/enc_tied\.c: a/ {on = 1} on && /^ *```$/ && code {exit} code {sub(/^   /, ""); print} on && /^ *```c$/ {code = 1}' "$page"
} >"$tree/encoder/enc_tied.c"

# 3. Its name in two files
name=$(sed -n 's/^const kvf__encoder_kind \(kvf__enc_[a-z]*\) .*/\1/p' "$tree/encoder/enc_tied.c")
sed -i "s/extern const kvf__encoder_kind /&$name, /" "$tree/encoder/encoder_priv.h"
sed -i "s/KINDS\[\] = {/&\&$name, /" "$tree/encoder/encoder.c"

# 4. Its options
list=$(line '^ *`#define PREFIXES')
sed -i "s/^#define PREFIXES .*/$list/" "$tree/src/options/option_rows.c"

for patch in "$source"/tests/example/*.patch; do
    patch -s -p1 -d "$tree" <"$patch"
done
find "$tree" -name '*.[ch]' -exec cp {} "$out" \;
