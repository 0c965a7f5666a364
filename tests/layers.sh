#!/bin/sh
# Checks the layers of the code. Foreign headers are included only in their wrapper's folder, no
# include leaves its folder by a path, and the command uses only the public headers. Between
# kvfold's own folders, the include path of each library in meson.build does the same; this script
# covers the remaining cases.
# Usage: layers.sh [SOURCE_ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"
failed=0

# Lines "file:line:#include ..." of all C sources, except for tests and foreign code.
includes() {
    find src encoder merge include -name '*.[ch]' -exec \
        grep -n '^[[:space:]]*#[[:space:]]*include' /dev/null {} +
}
all=$(includes)

# report TEXT LINES: one line per offence.
report() {
    [ -n "$2" ] || return 0
    printf '%s\n' "$2" | sed "s|^|layers: $1: |"
    failed=1
}

# only FOLDER PATTERN: headers matching the extended pattern may be included only below FOLDER.
only() {
    report "only $1 may include it" \
        "$(printf '%s\n' "$all" | grep -E "include[[:space:]]*[<\"]$2" | grep -v "^$1/" || true)"
}

only src/tensor '(oneapi/)?dnnl'
only src/tensor '([a-z]*mmintrin|x86intrin|cpuid|arm_neon)\.h'
only src/h5 '(hdf5|H5)'
only src/base '(jansson|xxhash|ctx_int|json_int)\.h'
only src/text '(pcre2|pcre2posix)\.h'
only 'src/\(text\|metric\)' 'utf8proc\.h'
only src/dist 'mpi\.h'
only src/data 'zlib\.h'
only src/serve 'microhttpd\.h'

report "climbs out of its folder" "$(
    grep -rnE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]*\.\./' \
        src encoder merge include tests || true
)"
report "names a folder instead of a bare file" \
    "$(printf '%s\n' "$all" | grep -E 'include[[:space:]]*"[^"]*/' || true)"

# The command: <kvfold/...>, headers of the system, and headers that lie in src/cli or src/hooks. A header is one
# of the inner ones if a file of its name lies in another folder; a quoted one must lie in one of the two.
if [ -d src/cli ]; then
    report "the command includes public headers and src/hooks only" "$(
        printf '%s\n' "$all" | grep '^src/cli/' | while IFS= read -r line; do
            name=$(printf '%s\n' "$line" | sed 's/^[^<"]*[<"]\([^>"]*\)[>"].*/\1/')
            [ ! -e "src/cli/$name" ] && [ ! -e "src/hooks/$name" ] || continue
            case $line in
            *include*\"*) printf '%s\n' "$line" ;;
            *) [ -z "$(find src encoder merge -name "$name")" ] || printf '%s\n' "$line" ;;
            esac
        done
    )"
fi

# Headers are included by bare name, so a name must mean one file.
twice=$(find src encoder merge -name '*.[ch]' -exec basename {} \; | sort | uniq -d)
report "file name is used twice" "$twice"

exit $failed
