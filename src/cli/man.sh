#!/bin/sh
# Writes kvfold(1), and kvfold-COMMAND(1) for every command that there is, made by the command itself.
# Usage: man.sh KVFOLD FOLDER
set -eu
kvfold=$(realpath "$1")
mkdir -p "$2"
cd "$2"
"$kvfold" --man >kvfold.1
for command in $("$kvfold" --help | sed -n '/^commands /,/^  help/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
    [ "$command" = help ] || "$kvfold" --man "$command" >"kvfold-$command.1"
done
