#!/bin/sh
# Makes dist/kvfold-VERSION-linux-x86_64.tar.xz from the wheel: the command with its libraries, manual pages, completions and licences.
# The folder can lie anywhere.
# Usage: tarball.sh WHEEL PATCHELF
set -eu
wheel=$1 patchelf=$2
name=$(basename "$wheel" | sed 's/^\(kvfold-[^-]*\)-.*/\1-linux-x86_64/')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m zipfile -e "$wheel" "$work/wheel"
out=$work/$name
mkdir -p "$out/bin" "$out/lib"
cp "$work"/wheel/kvfold.libs/* "$work"/wheel/kvfold/lib/*.so* "$out/lib"
cp "$work/wheel/kvfold/bin/kvfold" "$out/bin"
cp -R "$work"/wheel/kvfold-*.data/data/share "$out"
cp -R "$work"/wheel/kvfold-*.dist-info/licenses "$work"/wheel/kvfold-*.dist-info/sboms "$out"
"$patchelf" --set-rpath '$ORIGIN/../lib' "$out/bin/kvfold"
"$patchelf" --set-rpath '$ORIGIN' "$out"/lib/libkvfold.so.0
chmod -R u=rwX,go=rX "$out"
chmod 755 "$out/bin/kvfold"
tar --sort=name --mtime=@315532800 --owner=0 --group=0 --numeric-owner -C "$work" -cf - "$name" | xz -T 2 >"dist/$name.tar.xz"
echo "dist/$name.tar.xz"
