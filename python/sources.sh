#!/bin/sh
# Builds a library of the wheel from Debian's source package into a folder of the cache and prints that folder: HDF5 static,
# libmicrohttpd shared, so that it can be replaced as its licence wants, and libgomp of gcc-12. CC is the compiler. Taken is the first
# of its versions in sources.sha256 that the mirror has in sid, trixie or bookworm and that builds. This machine's own apt stays as
# it is: suites, lists and downloads are in the cache, the mirror and the keys are those of the machine. apt checks the signatures,
# sources.sha256 the upstream archive. A library that was built once is taken again.
# Usage: sources.sh hdf5|libmicrohttpd|gcc-12 CACHE_FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
name=$1
mkdir -p "$2"
cache=$(cd "$2" && pwd)
built=lib/$name.built-$(sha256sum "$here/sources.sh" | cut -c 1-8)
tools=$cache/tools/bin

versions() { sed -n "s/^.*  ${name}_\(.*\)\.orig\.tar\..*/\1/p" "$here/sources.sha256"; }

for version in $(versions); do
    folder=$cache/$name-$version
    [ ! -e "$folder/$built" ] || { echo "$folder"; exit 0; }
done

work=$cache/work-$name
log=$cache/$name.log
rm -rf "$work"
mkdir -p "$work" "$cache/apt/lists/partial" "$cache/apt/archives/partial"
cd "$work"

private() {
    program=$1
    shift
    "$program" -o "Dir::Etc::sourcelist=$cache/apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::Etc::preferencesparts=- \
        -o "Dir::State::lists=$cache/apt/lists" -o "Dir::Cache=$cache/apt" -o "APT::Sandbox::User=$(id -un)" "$@"
}

update() {
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Release: $(. /etc/os-release && echo "$VERSION_CODENAME")" |
        head -n 1)
    [ -n "$mirror" ] || { echo "sources.sh: apt has no mirror of Debian" >&2; exit 1; }
    for suite in sid trixie bookworm; do
        echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
    done >"$cache/apt/sources.list"
    private apt-get -qq update >&2
}

# fetch VERSION: to ./source, with Debian's patches
fetch() {
    for package in $(private apt-cache showsrc --only-source "$name" | sed -n 's/^Version: //p' | sort -rVu); do
        case $package in "$1"-*) ;; *) continue ;; esac
        private apt-get -qq source --download-only "$name=$package" >>"$log" 2>&1 || continue
        grep "  ${name}_$1\.orig" "$here/sources.sha256" | sha256sum --check --quiet >&2 || exit 1
        dpkg-source --no-check -x "${name}_$package.dsc" source >>"$log" 2>&1
        return
    done
    echo "sources.sh: the mirror does not have $name $1" >&2
    return 1
}

# No paths of this machine in what is built. Options that a version does not know do nothing.
flags="-O2 -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$work=."
build_hdf5() {
    # the text about the build, with its paths and its machine
    settings=source/src/H5build_settings.cmake.c.in
    [ ! -e $settings ] || sed -i '/^const char H5build_settings/,/^;/c const char H5build_settings[] = "";' $settings
    "$tools/cmake" -S source -B build -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_FLAGS=$flags" \
        "-DCMAKE_INSTALL_PREFIX=$1" -DBUILD_SHARED_LIBS=OFF -DBUILD_STATIC_LIBS=ON -DBUILD_TESTING=OFF \
        -DHDF5_BUILD_HL_LIB=ON -DHDF5_BUILD_TOOLS=OFF -DHDF5_BUILD_HL_TOOLS=OFF -DHDF5_BUILD_EXAMPLES=OFF \
        -DHDF5_BUILD_CPP_LIB=OFF -DHDF5_BUILD_FORTRAN=OFF -DHDF5_BUILD_JAVA=OFF -DHDF5_ENABLE_PARALLEL=OFF \
        -DHDF5_ENABLE_Z_LIB_SUPPORT=ON -DHDF5_ENABLE_ZLIB_SUPPORT=ON -DHDF5_ENABLE_SZIP_SUPPORT=OFF \
        -DHDF5_ENABLE_ROS3_VFD=OFF -DHDF5_ENABLE_EMBEDDED_LIBINFO=OFF -DHDF5_INSTALL_LIB_DIR=lib &&
        "$tools/cmake" --build build --target install
}
build_libmicrohttpd() {
    mkdir build
    (cd build && ../source/configure "CFLAGS=$flags" "--prefix=$1" --disable-static --disable-https \
        --disable-curl --disable-doc --disable-examples --disable-tools &&
        make install AUTOMAKE=: ACLOCAL=: AUTOCONF=: AUTOHEADER=:) && # a patch of Debian is newer than what was made from it
        sed -i 's/^Libs: .*/Libs: -Wl,-L${libdir} -Wl,-lmicrohttpd/' "$1/lib/pkgconfig/libmicrohttpd.pc" # else meson adds a run path
}
build_gcc() { # builds libgomp alone; the source package contains the upstream archive
    tar -C source --strip-components=1 -xf source/gcc-*.tar.xz && mkdir build &&
        (cd build && ../source/libgomp/configure "CFLAGS=$flags" "--prefix=$1" FC=false --disable-multilib --disable-static &&
            make install-strip)
}

update
for version in $(versions); do
    : >"$log"
    fetch "$version" || continue
    folder=$cache/$name-$version
    echo "building $name $version" >&2
    rm -rf "$folder" build
    if ! "build_${name%-12}" "$folder" >>"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -rf "$folder" source
        continue
    fi
    mkdir "$folder/licence"
    find source -maxdepth 1 '(' -name 'COPYING*' -o -name 'LICENSE*' ')' -exec cp '{}' "$folder/licence" ';'
    : >"$folder/$built"
    cd "$cache"
    rm -rf "$work"
    echo "$folder"
    exit 0
done
exit 1
