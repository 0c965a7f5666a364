#!/bin/sh
# Every source of the library has a test of its own in tests/coverage.txt, lines "SOURCE TEST", which runs most of its lines. "-" instead of a
# test: tables without code, and stand-ins for libraries that the build has.
# Usage: coverage.sh map SOURCE_ROOT   the list names every source once, and tests that exist
#        coverage.sh BUILD             a build with -Db_coverage=true: each test runs at least 70 % of its sources' lines (gcov)
#        coverage.sh BUILD TEST...     prints "SOURCE TEST SHARE" of everything that these tests run, to choose from
set -eu
here=$(cd "$(dirname "$0")" && pwd)
list=$here/coverage.txt

if [ "$1" = map ]; then
    cd "$2"
    failed=0
    fail() { echo "coverage: $*"; failed=1; }
    find src encoder merge -name '*.c' ! -path 'src/cli/*' | sort >"${TMPDIR:-/tmp}/coverage.$$"
    for line in $(cut -d' ' -f1 "$list" | sort | comm -3 - "${TMPDIR:-/tmp}/coverage.$$"); do
        fail "tests/coverage.txt names $line, which is no source, or lacks it"
    done
    rm -f "${TMPDIR:-/tmp}/coverage.$$"
    for name in $(cut -d' ' -f2 "$list" | grep -vx -e - | sort -u); do
        set -- tests/*/test_"$name".c tests/cli/"${name#cli_}".sh tests/dist/"${name#dist_}".sh
        while [ $# -gt 0 ] && ! [ -e "$1" ]; do shift; done
        [ $# -gt 0 ] || fail "tests/coverage.txt names the test $name"
    done
    exit $failed
fi

build=$(cd "$1" && pwd)
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shares TEST [SOURCE...]: lines "SOURCE TEST SHARE" of what the test runs, or of its part in these sources
shares() {
    name=$1
    shift
    names=" $(echo "$*" | tr / _) "
    rm -rf "$work/data"
    GCOV_PREFIX=$work/data meson test -C "$build" --no-rebuild --timeout-multiplier 10 "$name" >"$work/log" 2>&1 ||
        echo "coverage: the test $name fails" >&2
    for folder in "$work/data$build"/*.p "$work/data$build"/src/*/*.p; do
        [ -d "$folder" ] || continue
        for data in "$folder"/*.gcda; do
            part=${data##*/}
            part=${part%.gcda}
            case $names in "  " | *"$part "*) ;; *) continue ;; esac
            ln -sf "$build${folder#"$work/data$build"}/$part.gcno" "$folder"
            echo "$data"
        done
    done >"$work/files"
    [ ! -s "$work/files" ] || (cd "$build" && xargs gcov -n <"$work/files" 2>/dev/null) | awk -F"'" -v name="$name" '/^File/ {file = $2; sub("^.*\\.\\./", "", file)}
        /^Lines executed/ && file ~ /^(src|encoder|merge)\/.*\.c$/ {split($0, a, /[:%]/); print file, name, a[2]; file = ""}'
}

if [ $# -gt 0 ]; then
    for name; do shares "$name"; done
    exit
fi
for name in $(cut -d' ' -f2 "$list" | grep -vx -e - | sort -u); do
    # shellcheck disable=SC2046 # a list
    shares "$name" $(sed -n "s/ $name\$//p" "$list")
done >"$work/all"
awk 'NR == FNR {if ($3 + 0 > share[$1 " " $2] + 0) share[$1 " " $2] = $3; next}
    $2 == "-" {next}
    {n++; if (share[$0] + 0 < 70) {bad++; printf "coverage: %s runs %.0f %% of %s, want 70\n", $2, share[$0], $1}}
    END {printf "%d sources, %d of them below 70 %%\n", n, bad; exit bad > 0}' "$work/all" "$list"
