#!/bin/sh
# Installs kvfold(1), and kvfold-COMMAND(1) for every command that there is, made by the command itself.
# Usage, by meson: install_man.sh KVFOLD MANDIR
set -eu
man=$MESON_INSTALL_DESTDIR_PREFIX/$2/man1
kvfold=$MESON_BUILD_ROOT/${1##*/}
mkdir -p "$man"
[ -x "$kvfold" ]
"$kvfold" --man >"$man/kvfold.1"
for command in $("$kvfold" --help | sed -n '/^commands /,/^  help/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
    [ "$command" = help ] || "$kvfold" --man "$command" >"$man/kvfold-$command.1"
done
