#!/bin/sh
# Checks that names in the documents exist in the tree: files, anchors of links, functions, tests;
# also names cited in comments. A test file is named after the file or folder that it tests.
# Usage: docs.sh SOURCE_ROOT
set -u
cd "${1:-$(dirname "$0")/..}" || exit 1
failed=0
pages="README.md CHANGELOG.md SECURITY.md tests/README.md tests/peers/README.md $(echo docs/*.md)"
sources=$(find src encoder merge include tests examples -name '*.[ch]')

fail() {
    printf 'docs: %s\n' "$*"
    failed=1
}

# exists PATTERN: a file or folder; <word> is a wildcard.
exists() {
    # shellcheck disable=SC2046,SC2086 # a pattern
    set -- $(printf '%s\n' "$1" | sed 's/<[^>]*>/*/g')
    [ -e "$1" ]
}

# prose PAGE: the page without its code blocks, whose names may be examples
prose() {
    awk '/^ *```/ { block = !block; next } !block' "$1"
}

# in_code PAGE: the text between backticks outside of blocks, one line each
in_code() {
    prose "$1" | grep -o '`[^`]*`' | tr -d '`' | sort -u
}

# The slug of each heading, as made by GitHub.
anchors() {
    sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

for page in $pages; do
    here=$(dirname "$page")
    for word in $(in_code "$page" | grep -E '^(src|encoder|merge|include|tests|docs|examples|recipes)/[^ ]*$'); do
        exists "$word" || fail "$page names $word"
    done
    for word in $(in_code "$page" | grep -E '^[a-z0-9_*<>]+\.(c|h|sh|py)$'); do
        pattern=$(printf '%s\n' "$word" | sed 's/<[^>]*>/*/g')
        [ -n "$(find src encoder merge include tests examples python setup.sh -name "$pattern" | head -n 1)" ] ||
            fail "$page names $word"
    done
    for word in $(prose "$page" | grep -ow 'kvf_[a-z_0-9]*[a-z0-9]' | sort -u); do
        # shellcheck disable=SC2086 # names of files
        grep -qw -e "$word" $sources || fail "$page names $word"
    done
    for link in $(grep -o '](\([^)]*\))' "$page" | sed 's/](\(.*\))/\1/' | grep -v '^http' | sort -u); do
        file=$here/${link%%#*}
        [ "${link%%#*}" ] || file=$page
        if [ ! -e "$file" ]; then
            fail "$page links to $link"
        elif [ "${link#*#}" != "$link" ] && ! anchors "$file" | grep -qx -e "${link#*#}"; then
            fail "$page links to $link: no such heading"
        fi
    done
done

# Names in comments; ggml has a docs/gguf.md of its own.
# shellcheck disable=SC2086 # names of files
for word in $(grep -ohE '\b(docs|tests|examples)/[A-Za-z0-9_/.-]+\.(md|c|h|py|sh|txt)\b' $sources $(find tests -name '*.py' -o -name '*.sh') |
    grep -vx docs/gguf.md | sort -u); do
    exists "$word" || fail "a comment cites $word"
done

# Documents cited without a folder are in the tree; SOURCE.md describes the shared data.
# shellcheck disable=SC2086 # names of files
for word in $(grep -ohE '\b[A-Z]+\.md\b' $sources | grep -vx SOURCE.md | sort -u); do
    [ -e "$word" ] || fail "a comment cites $word"
done
[ "$(wc -l <README.md)" -le 150 ] || fail 'README.md has more than 150 lines: a page of docs/ is the place'

# is_test NAME: true if meson has this test; with * several
is_test() {
    exists "tests/*/test_$1.c" || exists "tests/cli/${1#cli_}.sh" || exists "tests/fuzz/$1.c" || exists "tests/dist/${1#dist_}.sh" ||
        grep -q "test('$1'" tests/meson.build tests/*/meson.build
}

for page in tests/README.md docs/promises.md; do
    for name in $(sed -n 's/^|.*|\([^|]*\)|$/\1/p' "$page" | grep -o '`[a-z][a-z0-9_*]*`' | tr -d '`' | sort -u); do
        is_test "$name" || fail "$page names the test $name"
    done
done

# A test's name begins with that of a folder, a file, a command, or a family of files (rows_*.c), up to an underscore.
names=" $(find src encoder merge -type d -exec basename {} \; | tr '\n' ' ')$(find src encoder merge -name '*.[ch]' -exec basename {} \; |
    sed 's/\.[ch]$//; s/^cmd_//; s/_int$//; s/_priv$//' | tr '\n' ' ')"
for file in tests/*/test_*.c; do
    name=$(basename "$file" .c)
    name=${name#test_}
    grep -q "suite_create(\"$name\")" "$file" || fail "$file has a suite of another name"
    while :; do
        case $names in *" $name "* | *" ${name}_"*) continue 2 ;; esac
        case $name in *_*) name=${name%_*} ;; *) break ;; esac
    done
    fail "$file has the name of no file or folder"
done
exit $failed
