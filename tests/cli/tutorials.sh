# Runs docs/tutorials.md as it stands, on the two real bases that setup.sh fetches. Its `kvfold` is
# the command under test.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kvfold
for base in SmolLM2-135M-Instruct.Q4_1.gguf all-MiniLM-L6-v2; do
    [ -e "$cache/$base" ] || { skip "no $base (./setup.sh test fetches it)"; exit 77; }
    ln -s "$cache/$base" .
done
mkdir bin
ln -s "$KVFOLD" bin/kvfold
PATH=$PWD/bin:$PATH
sed -n '/^```sh$/,/^```$/p' "$SOURCE/docs/tutorials.md" | sed '/^```/d' >all.sh
[ "$(grep -c '^kvfold ' all.sh)" -gt 15 ] || fail 'the page has fewer commands than sections need'
sh -eu all.sh >out 2>err || fail "the page stops: $(tail -n 3 err)"
has out '"prediction":"good"'
has out '"prediction":\["B-person","O","O","B-place"\]'
[ -s llama/prefix.state ] || fail 'no state for llama.cpp'
