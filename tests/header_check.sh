#!/bin/sh
# Every public header compiles alone, in C11 and in C++.
# Usage: header_check.sh SOURCE_ROOT 'CC' ['CXX']
set -eu
root=$1
cc=$2
cxx=${3:-}
failed=0

if [ -z "$cxx" ]; then
    echo "no C++ compiler: the headers are checked in C only"
fi
for header in "$root"/include/kvfold/*.h; do
    name=kvfold/$(basename "$header")
    define=
    ! grep -q '^#error' "$header" || define='#define KVF_EXPERIMENTAL\n'
    # shellcheck disable=SC2086 # a compiler may be several words
    printf "$define"'#include <%s>\n#include <%s>\n' "$name" "$name" |
        $cc -std=c11 -Wall -Wextra -Wstrict-prototypes -Wpedantic -Werror -fsyntax-only \
            -I"$root/include" -x c - || failed=1
    [ -n "$cxx" ] || continue
    # shellcheck disable=SC2086
    printf "$define"'#include <%s>\n' "$name" |
        $cxx -std=c++11 -Wall -Wextra -Werror -fsyntax-only -I"$root/include" -x c++ - || failed=1
done
exit $failed
