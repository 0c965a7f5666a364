#!/bin/sh
# A folder's meson.build lists its files lowest first: no file uses a symbol of a file listed after
# it. The order is that of the objects in the folder's library, and the symbols come from nm. Only
# kvfold's own names count, kvf_ and kvf__, so additions of a sanitizer or a compiler do not matter.
# The kernels of src/tensor/x86 are left out: each is in a library for every instruction set, and
# only cpu.c refers to them.
# Usage: order.sh [FOLDER LIBRARY]...
set -eu

failed=0
while [ $# -gt 0 ]; do
    folder=$1 library=$2
    shift 2
    # Members come in the order of the list, except for generated ones, which come first.
    found=$(nm -p "$library" | awk -v folder="$folder" '
        BEGIN { prefix = folder "_"; gsub("/", "_", prefix) }
        /:$/ {
            name = $0
            sub(/:$/, "", name)
            sub(/.*\//, "", name)
            sub(/\.o$/, "", name)
            sub(/^meson-generated_[._]*/, "", name)
            sub("^" prefix, "", name)
            file[++n] = name
            next
        }
        NF == 3 && $2 ~ /^[A-Z]$/ && $3 ~ /^kvf_/ && !($3 in place) { place[$3] = n; any = 1 }
        NF == 2 && $2 ~ /^kvf_/ { use[++uses] = $2; user[uses] = n }
        END {
            if (!any) { print "order: " folder ": nm shows no symbol"; exit }
            for (i = 1; i <= uses; i++) {
                if (!(use[i] in place)) continue
                to = place[use[i]]
                if (to <= user[i]) continue
                arrow = user[i] SUBSEP to
                if (!(arrow in names)) arrows[++m] = arrow
                names[arrow] = names[arrow] (arrow in names && names[arrow] ? ", " : "") use[i]
            }
            for (i = 1; i <= m; i++) {
                split(arrows[i], ends, SUBSEP)
                print "order: " folder ": " file[ends[1]] " uses " names[arrows[i]] " of " \
                    file[ends[2]] ", which is listed after it"
            }
        }')
    [ -z "$found" ] && continue
    printf '%s\n' "$found"
    failed=1
done
exit $failed
