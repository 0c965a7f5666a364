#!/bin/sh
# Follows docs/contributing.md's example of a method to the letter: copies the files that the page
# changes and adds its lines to them.
# Usage: method.sh SOURCE_ROOT OUT_DIR
set -eu
source=$1
out=$2
page=$source/docs/contributing.md

# line PATTERN: the one line of the page that matches, without the quotes of code.
line() {
    found=$(grep -E "$1" "$page" | sed 's/^ *`//; s/`$//')
    [ "$(printf '%s\n' "$found" | wc -l)" -eq 1 ] && [ -n "$found" ] && printf '%s\n' "$found" && return
    echo "$page: want one line like $1" >&2
    exit 1
}

# 1. the row of the list
row=$(line '^ *`X\("tied"')
awk -v row="    $row" '/^    X\("head"/ {sub(/$/, " \\"); print; print row; next} {print}' \
    "$source/src/options/method.h" >"$out/method.h"
cp "$source/src/options/method.c" "$out/method.c"

# 2. the kind: the block of code after "enc_tied.c"
{
    printf '#include "encoder_priv.h"\n\n#include <string.h>\n\n'
    awk '/enc_tied\.c: a/ {on = 1} on && /^ *```$/ && code {exit} code {sub(/^   /, ""); print} on && /^ *```c$/ {code = 1}' "$page"
} >"$out/enc_tied.c"

# 3. its name in two files
name=$(sed -n 's/^const kvf__encoder_kind \(kvf__enc_[a-z]*\) .*/\1/p' "$out/enc_tied.c")
sed "s/extern const kvf__encoder_kind /&$name, /" "$source/encoder/encoder_priv.h" >"$out/encoder_priv.h"
sed "s/KINDS\[\] = {/&\&$name, /" "$source/encoder/encoder.c" >"$out/encoder.c"

# 4. the options that it has
list=$(line '^ *`#define PREFIXES')
sed "s/^#define PREFIXES .*/$list/" "$source/src/options/option_rows.c" >"$out/option_rows.c"
