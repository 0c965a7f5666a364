#!/bin/sh
# A folder's meson.build lists its files lowest first: none uses a symbol of a file that is listed
# after it. The order is that of the objects in the folder's library; the symbols are those of nm.
# Only names of ours count, kvf_ and kvf__, so nothing that a sanitizer or a compiler adds does.
# The kernels of src/tensor/x86 are not looked at: each is in a library for every instruction set,
# and cpu.c alone knows them.
# Usage: order.sh [FOLDER LIBRARY]...
set -eu

failed=0
while [ $# -gt 0 ]; do
    folder=$1 library=$2
    shift 2
    # Members come in the order of the list, but for what is generated, which comes first.
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
