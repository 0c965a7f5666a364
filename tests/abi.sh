#!/bin/sh
# Checks the ABI of the shared library. It exports only the functions of the public headers, the
# stable ones with the version KVFOLD_0, and the hooks that the command uses, with KVFOLD_HOOKS. The stable functions, struct members with offsets, and enum
# values equal those in abi.txt.
# Additions to the headers are added to abi.txt, too (`tests/abi.sh --list ROOT CC >tests/abi.txt`).
# Changes and removals break programs and require another soversion.
# Usage: abi.sh ROOT CC LIBRARY, abi.sh --list ROOT CC
set -eu
list=
if [ "$1" = --list ]; then
    list=yes
    shift
fi
root=$1
cc=$2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0

# declarations OUT ARGUMENTS...: the headers without comments, directives and system declarations
declarations() {
    out=$1
    shift
    # shellcheck disable=SC2086 # a compiler may be several words
    printf '#include <kvfold/kvfold.h>\n' | $cc -std=c11 -E -I"$root/include" "$@" -x c - |
        awk '/^# [0-9]/ { ours = $3 ~ /kvfold\//; next } ours' >"$out"
}

# functions FILE: function names in declarations
functions() {
    grep -oE '\bkvf_[a-z0-9_]+\(' "$1" | tr -d '(' | sort -u
}

declarations "$folder/stable" -UKVF_EXPERIMENTAL
declarations "$folder/all" -DKVF_EXPERIMENTAL

# A program that prints sizes, offsets and values. A member's name is the text before [, or inside
# (*name).
tr '\n' ' ' <"$folder/stable" | sed 's/  */ /g; s/typedef \(struct\|enum\) /\n\1 /g' | awk '
    /^struct [a-z_0-9]* *{/ {
        name = $2; body = $0; sub(/^[^{]*{/, "", body); sub(/}.*/, "", body)
        printf "printf(\"struct %s %%zu\\n\", sizeof(%s));\n", name, name
        n = split(body, member, ";")
        for (i = 1; i <= n; i++) {
            text = member[i]
            if (text ~ /\(\*/) { sub(/^[^(]*\(\*/, "", text); sub(/\).*/, "", text) }
            m = split(text, declarator, ",")
            for (j = 1; j <= m; j++) {
                word = declarator[j]; sub(/\[.*/, "", word); sub(/ *$/, "", word); sub(/.*[^a-zA-Z_0-9]/, "", word)
                if (word != "") printf "printf(\"struct %s %s %%zu\\n\", offsetof(%s, %s));\n", name, word, name, word
            }
        }
    }
    /^enum [a-z_0-9]* *{/ {
        body = $0; sub(/^[^{]*{/, "", body); sub(/}.*/, "", body)
        n = split(body, value, ",")
        for (i = 1; i <= n; i++) {
            word = value[i]; sub(/=.*/, "", word); gsub(/ /, "", word)
            if (word != "") printf "printf(\"%s %%d\\n\", (int)%s);\n", word, word
        }
    }' >"$folder/body"
{
    printf '#include <kvfold/kvfold.h>\n#include <stdio.h>\nint main(void)\n{\n'
    cat "$folder/body"
    printf 'return 0;\n}\n'
} >"$folder/layout.c"
# shellcheck disable=SC2086
$cc -std=c11 -UKVF_EXPERIMENTAL -I"$root/include" "$folder/layout.c" -o "$folder/layout"
functions "$folder/stable" >"$folder/stable.names"
{
    sed 's/^/function /' "$folder/stable.names"
    "$folder/layout"
} >"$folder/abi.txt"
if [ -n "$list" ]; then
    cat "$folder/abi.txt"
    exit 0
fi
diff -u "$root/tests/abi.txt" "$folder/abi.txt" || failed=1

# The hooks of the map are the names of src/hooks that src/cli uses.
sed -n '/^KVFOLD_HOOKS/,/^}/s/^ *\(kvf__[a-z0-9_]*\);$/\1/p' "$root/src/libkvfold.map" >"$folder/hooks"
grep -ohE 'kvf__[a-z0-9_]+' "$root"/src/cli/*.[ch] | sort -u >"$folder/used"
grep -ohE '^(extern |static inline )?[a-z][^(={]*[ *]kvf__[a-z0-9_]+[(;]' "$root"/src/hooks/*.h | grep -v '^static\|^typedef\|^struct' |
    grep -oE 'kvf__[a-z0-9_]+[(;]' | tr -d '(;' | sort -u | comm -12 - "$folder/used" >"$folder/hooks.used"
diff -u "$folder/hooks.used" "$folder/hooks" || failed=1

# Exports: NAME@@VERSION
nm -D --defined-only "$3" | awk '$2 != "A" { print $3 }' | sort >"$folder/exports"
sed 's/$/@@KVFOLD_HOOKS/' "$folder/hooks" >"$folder/hooks.wanted"
functions "$folder/all" | while read -r name; do
    version=KVFOLD_EXPERIMENTAL
    ! grep -qx "$name" "$folder/stable.names" || version=KVFOLD_0
    echo "$name@@$version"
done | sort - "$folder/hooks.wanted" >"$folder/wanted"
diff -u "$folder/wanted" "$folder/exports" || failed=1
# Options can get more members later: they end in `reserved`, which every library checks for zeros.
tr '\n' ' ' <"$folder/stable" | sed 's/typedef struct/\n&/g' | grep -o 'typedef struct kvf_[a-z_]*options *{[^}]*}' |
    while read -r _ _ name rest; do
        case $rest in
        *reserved\[*\]\;\ }) grep -rqs "KVF__CHECK_RESERVED([^,]*, $name," "$root"/src "$root"/merge || echo "$name: reserved is not checked" ;;
        *) echo "$name: does not end in reserved" ;;
        esac
    done >"$folder/options"
[ ! -s "$folder/options" ] || { cat "$folder/options"; failed=1; }
[ "$(wc -l <"$folder/exports")" -gt 50 ] || { echo 'hardly anything is exported'; failed=1; }
if grep -n 'kvf__' "$root"/include/kvfold/*.h; then
    echo 'a public header names what is not public'
    failed=1
fi
exit $failed
