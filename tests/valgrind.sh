#!/bin/sh
# Runs a small workflow from training to generation under valgrind: no invalid access, no branch on
# an undefined value, no definite leak. Covers libraries and the release build, which sanitizers
# cannot check. Takes a minute or two; .ci/run calls it.
# Usage: valgrind.sh KVFOLD MAKE_TINY
set -eu
KVFOLD=$(realpath "$1")
MAKE_TINY=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export OMP_WAIT_POLICY=passive
"$MAKE_TINY" model
for i in 1 2 3 4 5 6; do
    printf '{"prompt": "after %d:", "completion": " %d"}\n' $i $((i + 1))
done >rows.jsonl

check() {
    echo "valgrind: kvfold $1"
    valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite \
        --child-silent-after-fork=yes "$KVFOLD" "$@" --threads 1 --quiet >out 2>err || {
        cat out err
        exit 1
    }
}
check train --base model --data rows.jsonl --valid rows.jsonl --prefix-length 2 --encoder-hidden 8 \
    --precision f32 --steps 2 --batch-size 3 --out run.h5
check merge run.h5 --out prefix.h5
check eval --base model --data rows.jsonl --prefix prefix.h5 --precision f32
check generate --base model --prompt 'after 3:' --prefix prefix.h5 --max-tokens 3 --precision f32
check export prefix.h5 --out adapter
echo 'valgrind: no errors'
