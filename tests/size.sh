#!/bin/sh
# Checks that the code is no larger than docs/contributing.md allows: the sum of the started rows of
# its table. A line of code is neither blank nor only comment, in C and headers, as counted by cloc.
# Usage: size.sh SOURCE_ROOT
set -eu
cd "$1"
count() {
    find "$@" -name '*.[ch]' -exec cat {} + | awk '{
        line = $0; code = ""
        while (line != "") {
            if (inside) {
                end = index(line, "*/")
                if (!end) break
                line = substr(line, end + 2); inside = 0
            } else if (match(line, /^[^"\/\047]+/) || match(line, /^"([^"\\]|\\.)*"/) || match(line, /^\047([^\047\\]|\\.)*\047/)) {
                code = code substr(line, 1, RLENGTH); line = substr(line, RLENGTH + 1)
            } else if (substr(line, 1, 2) == "/*") { inside = 1; line = substr(line, 3) }
            else if (substr(line, 1, 2) == "//") break
            else { code = code substr(line, 1, 1); line = substr(line, 2) }
        }
        if (code ~ /[^ \t\r]/) n++
    } END { print n + 0 }'
}
table() { sed -n '/^## Size/,/^## /p' docs/contributing.md | tr -d ','; }
limit=$(table | awk -F'|' '$4 ~ /yes/ {n += $3} END {print n + 0}')
lab=$(table | sed -n 's/.*lab has at most \([0-9]*\).*/\1/p')
[ "$limit" -gt 0 ] && [ -n "$lab" ] || { echo "size: docs/contributing.md has no table of sizes"; exit 1; }
all=$(count src include encoder merge)
[ "$all" -gt 50000 ] || { echo "size: only $all lines found"; exit 1; }
[ "$all" -le "$limit" ] || { echo "size: $all lines of code, docs/contributing.md allows $limit"; exit 1; }
[ "$(count src/lab)" -le "$lab" ] || { echo "size: src/lab has $(count src/lab) lines of code, want at most $lab"; exit 1; }
echo "$all lines of code of $limit"
