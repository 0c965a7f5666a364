#!/bin/sh
# Checks the files of `meson install` in the layout of a Debian package, and builds a program
# against them.
# Usage: install.sh MESON BUILD_DIR SOURCE_DIR CC
set -u
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
failures=0
fail() {
    failures=$((failures + 1))
    printf 'FAILED: %s\n' "$*"
}

DESTDIR=$folder "$1" install -C "$2" --no-rebuild --quiet >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
root=$(dirname "$(dirname "$(find "$folder" -path '*/bin/kvfold' -type f)")")
[ -x "$root/bin/kvfold" ] || { echo 'no bin/kvfold'; exit 1; }
for file in share/man/man1/kvfold.1 share/bash-completion/completions/kvfold.bash share/zsh/site-functions/_kvfold \
    share/fish/vendor_completions.d/kvfold.fish share/doc/kvfold/README.md share/doc/kvfold/CHANGELOG.md share/doc/kvfold/LICENSE \
    share/doc/kvfold/SECURITY.md share/doc/kvfold/CITATION.cff; do
    [ -s "$root/$file" ] || [ -s "$root/$file.gz" ] || fail "$file is not installed"
done
for file in "$3"/include/kvfold/*.h; do
    [ -s "$root/include/kvfold/${file##*/}" ] || fail "include/kvfold/${file##*/} is not installed"
done
for file in "$3"/docs/*.md "$3"/recipes/*.txt "$3"/recipes/experiments/*.txt; do
    file=${file#"$3"/}
    [ -s "$root/share/doc/kvfold/$file" ] || fail "$file is not installed"
done
for file in "$3"/examples/*.c "$3"/examples/*.sh "$3"/examples/*.py; do
    [ -s "$root/share/doc/kvfold/examples/${file##*/}" ] || fail "examples/${file##*/} is not installed"
done
for file in "$root"/share/doc/kvfold/examples/*.sh; do
    [ -x "$file" ] || fail "$file cannot be run"
done
commands=$("$root/bin/kvfold" --help | sed -n '/^commands /,/^  help/s/^  \([a-z][a-z-]*\) .*/\1/p')
[ -n "$commands" ] || fail 'no commands in --help'
for command in $commands; do
    page=$root/share/man/man1/kvfold-$command.1
    [ "$command" != help ] || continue
    [ -s "$page" ] || fail "no manual page of $command"
    options=$("$root/bin/kvfold" "$command" --help all | grep -c '^  --')
    [ "$(grep -c '^\.It Fl' "$page")" -eq "$options" ] || fail "$page has not $options options"
    if command -v mandoc >/dev/null; then
        mandoc -Tlint -Werror "$page" >"$folder/lint" 2>&1 || fail "$(cat "$folder/lint")"
    fi
done
# MPI is opened on demand: no library of it comes with the command.
ldd "$root/bin/kvfold" | grep -q 'libmpi\|libopen-rte' && fail 'bin/kvfold is linked with MPI'
if [ -e "$2/kvfold-mpi.so" ]; then
    [ "$(find "$root" -path '*/kvfold/kvfold-mpi.so' | wc -l)" -eq 1 ] || fail 'kvfold-mpi.so is not installed'
    patched=$root/../kvfold && sed 's/kvfold-mpi\.so/kvfold-xxx.so/' "$root/bin/kvfold" >"$patched" && chmod +x "$patched"
    SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 "$patched" train --base none --data none --out none.h5 >"$folder/log" 2>&1
    grep -q 'Slurm started 2 processes, but this kvfold has no MPI (.*kvfold-xxx.so' "$folder/log" || fail "$(cat "$folder/log")"
fi
library=$(find "$root" -name libkvfold.a)
package=$(find "$root" -name kvfold.pc)
case $library in
"$root"/lib/* | "$root"/lib64/*) ;; # the second where meson does not know that this is Debian
*) fail "libkvfold.a is at \"$library\"" ;;
esac
[ "$package" = "$(dirname "$library")/pkgconfig/kvfold.pc" ] || fail "kvfold.pc is at \"$package\""

# The examples, compiled by the command at their top.
if command -v pkg-config >/dev/null && [ -n "$package" ]; then
    mkdir "$folder/pc" && sed "s|^prefix=.*|prefix=$root|" "$package" >"$folder/pc/kvfold.pc"
    export PKG_CONFIG_PATH="$folder/pc"
    cd "$folder" || exit 1
    for file in "$root"/share/doc/kvfold/examples/*.c; do
        name=$(basename "$file" .c)
        cp "$file" .
        line=$(sed -n 's/^ \* *\(cc .*pkg-config.*\)$/\1/p' "$file")
        [ -n "$line" ] || fail "$name.c does not say how it is built"
        sh -c "$4 ${line#cc }" || fail "$name.c does not build against what is installed"
        LD_LIBRARY_PATH=$(dirname "$library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "./$name" >out 2>&1
        [ $? -eq 2 ] || fail "$name does not run: $(cat out)"
    done
    # Compiling needs no package of another library.
    PKG_CONFIG_LIBDIR=$folder/none pkg-config --cflags --libs kvfold >out 2>&1 || fail "$(cat out)"
    # The static library, with all its dependencies.
    # shellcheck disable=SC2046,SC2086 # words
    $4 inspect.c -o static $(pkg-config --cflags --libs --static kvfold | sed 's/-lkvfold\b/-l:libkvfold.a/') ||
        fail 'the static library does not link by pkg-config --static'
    ./static >out 2>&1
    [ $? -eq 2 ] || fail "with the static library it does not run: $(cat out)"
else
    echo 'skipped: no pkg-config to build the examples with'
fi
# The same by CMake.
if command -v cmake >/dev/null; then
    mkdir "$folder/cmake" && cd "$folder/cmake" || exit 1
    printf '%s\n' 'cmake_minimum_required(VERSION 3.15)' 'project(x C)' 'find_package(kvfold 0.1 REQUIRED)' \
        "add_executable(inspect $root/share/doc/kvfold/examples/inspect.c)" 'target_link_libraries(inspect kvfold::kvfold)' >CMakeLists.txt
    { cmake -G Ninja -S . -B b "-DCMAKE_PREFIX_PATH=$root" && cmake --build b; } >log 2>&1 || fail "$(cat log)"
    ./b/inspect >out 2>&1
    [ $? -eq 2 ] || fail "a program of CMake does not run: $(cat out)"
else
    echo 'skipped: no cmake to build an example with'
fi
[ $failures -eq 0 ]
