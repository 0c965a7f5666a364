#!/bin/sh
# Every public header compiles alone, in C11 and in C++; the example at its top compiles as C11 and
# C++17, and so do the programs of examples/.
# Usage: header_check.sh SOURCE_ROOT 'CC' ['CXX']
set -eu
root=$1
cc=$2
cxx=${3:-}
failed=0

if [ -z "$cxx" ]; then
    echo "no C++ compiler: the headers are checked in C only"
fi

# compile COMPILER LANGUAGE STANDARD: standard input, without a warning
compile() {
    # shellcheck disable=SC2086 # a compiler may be several words
    $1 -std="$3" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$root/include" -x "$2" -
}

# example HEADER: the first indented lines of its first comment, as the body of a function. Objects
# that it does not create are declared.
example() {
    awk '/^ \*     / { sub(/^ \*     /, ""); sub(/ \*\/$/, ""); print; found = 1; next } found || /\*\// { exit }' "$1" >"$folder/body"
    [ -s "$folder/body" ] || { echo "${1##*/} has no example" >&2 && return 1; }
    printf '#define KVF_EXPERIMENTAL\n#include <kvfold/kvfold.h>\n#include <stdio.h>\n#include <string.h>\n'
    printf 'int example(kvf_ctx *ctx, kvf_base *base, kvf_prefix *prefix, kvf_train_options *options, const char *text, size_t n);\n'
    printf 'int example(kvf_ctx *ctx, kvf_base *base, kvf_prefix *prefix, kvf_train_options *options, const char *text, size_t n)\n{\n'
    printf '(void)ctx, (void)base, (void)prefix, (void)options, (void)text, (void)n;\n{\n'
    cat "$folder/body"
    printf '}\nreturn 0;\n}\n'
}

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
for header in "$root"/include/kvfold/*.h; do
    name=kvfold/$(basename "$header")
    {
        ! grep -q '^#error' "$header" || echo '#define KVF_EXPERIMENTAL'
        printf '#include <%s>\n#include <%s>\n' "$name" "$name"
    } >"$folder/alone"
    compile "$cc" c c11 <"$folder/alone" || failed=1
    [ -z "$cxx" ] || compile "$cxx" c++ c++11 <"$folder/alone" || failed=1
    [ "$name" != kvfold/kvfold.h ] || continue
    example "$header" >"$folder/example" || failed=1
    compile "$cc" c c11 <"$folder/example" || failed=1
    [ -z "$cxx" ] || compile "$cxx" c++ c++17 <"$folder/example" || failed=1
done
for program in "$root"/examples/*.c; do
    compile "$cc" c c11 <"$program" || failed=1
    [ -z "$cxx" ] || compile "$cxx" c++ c++17 <"$program" || failed=1
done
exit $failed
