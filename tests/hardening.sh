#!/bin/sh
# Checks that the command is hardened against hostile input: position-independent, bound at start
# with read-only relocations, with stack protector and checked copies.
# Usage: hardening.sh KVFOLD
set -u
command -v readelf >/dev/null || { echo 'hardening: no readelf, skipped'; exit 77; }
failures=0
# has WHAT OPTION PATTERN
has() {
    LC_ALL=C readelf -W "$2" "$KVFOLD" 2>/dev/null | grep -q "$3" && return
    echo "hardening: $1 is missing in $KVFOLD"
    failures=1
}
KVFOLD=$1
has 'a position-independent file' -h 'Type: *DYN'
has 'GNU_RELRO' -l GNU_RELRO
has 'BIND_NOW' -d 'BIND_NOW\|FLAGS_1.*NOW'
has 'the stack protector' --dyn-syms __stack_chk_fail
has 'a checked copy' --dyn-syms '__[a-z]*_chk'
exit $failures
