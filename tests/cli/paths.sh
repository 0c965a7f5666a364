# Wrong paths are found before a base is loaded, and messages name the remedy. The base here has
# unreadable weights, so that its own error would come first.
make_inputs
train 0 --out run.h5 --method direct --steps 1 --quiet
run 0 merge run.h5 --out prefix.h5
run 0 export prefix.h5 --out peft
cp -r model broken
: >broken/model.safetensors
: >there.h5
missing='no-such: cannot open: No such file or directory'

# failing LINE ARGUMENTS...
failing() {
    line=$1
    shift
    run 1 "$@"
    out_is
    err_is "kvfold: $line"
}
run 1 eval --base broken --data valid.jsonl
has err 'broken/model.safetensors'

failing "train: $missing" train --base broken --data no-such --out o.h5
failing "train: $missing" train --base broken --data train.jsonl --valid no-such --out o.h5
failing "train: $missing" train --base broken --data train.jsonl --retain no-such --out o.h5
failing "train: $missing" train --base broken --data a=train.jsonl --data b=no-such --task a=lm --task b=lm --out o.h5
failing "train: $missing" train --base broken --data train.jsonl --init-from no-such --out o.h5
failing "train: model: is a folder, want a file" train --base broken --data model --out o.h5
failing "distill: $missing" distill --base broken --document no-such --out o.h5
failing "eval: $missing" eval --base broken --data no-such
failing "eval: $missing" eval --base broken --data valid.jsonl --prefix no-such
failing "generate: $missing" generate --base broken --data no-such
failing "predict: $missing" predict --base broken --data no-such --out o.jsonl
failing 'predict: there.h5: exists (use --force to replace it)' predict --base broken --data valid.jsonl --out there.h5
failing "words: $missing" words no-such --base broken
failing "report: $missing" report prefix.h5 --base broken --data no-such --out o.html
failing 'report: there.h5: exists (use --force to replace it)' report prefix.h5 --base broken --data valid.jsonl --out there.h5
failing "prune: $missing" prune prefix.h5 --base broken --data no-such --keep 1 --out o.h5
failing "quantize: $missing" quantize no-such --base broken --data valid.jsonl --dtype f16 --out o.h5
failing "merge: $missing" merge run.h5 --base broken --probe no-such --out o.h5
failing 'compose: there.h5: exists (use --force to replace it)' compose prefix.h5 prefix.h5 --base broken --out there.h5
run 1 predict --base broken --data valid.jsonl --out no/such/folder
has err '^kvfold: predict: no/such/folder.*: cannot write: No such file or directory$'

# files that are not a prefix, or not a base
failing "eval: peft: is a PEFT folder: \`kvfold import peft --out PREFIX.h5\` converts it to a prefix file" \
    eval --base broken --data valid.jsonl --prefix peft
failing 'eval: model: is a base, not a prefix: use it with --base' \
    eval --base prefix.h5 --data valid.jsonl --prefix model
failing 'words: model: is a base, not a prefix: use it with --base' words model --base prefix.h5
failing 'eval: prefix.h5: is a prefix file, not a base: use it with --prefix' eval --base prefix.h5 --data valid.jsonl
failing 'train: run.h5: is a run file, not a base: use it with --prefix' train --base run.h5 --data train.jsonl --out o.h5
failing "eval: peft: is a PEFT folder, not a base: \`kvfold import\` converts it to a prefix" eval --base peft --data valid.jsonl

# messages name the base that a prefix was made for
"$MAKE_TINY" llama 2 || exit 1
run 1 eval --base llama --data valid.jsonl --prefix prefix.h5
has err 'the prefix is for base model ('
"$MAKE_TINY" bert 1 bert || exit 1
run 1 eval --base bert --data valid.jsonl --prefix prefix.h5
has err 'the prefix is for base model, '

# a base of the Hub's cache by its name
revision=0123456789abcdef0123456789abcdef01234567
hub=$PWD/home/hub
mkdir -p "$hub/models--some--tiny-model/refs" "$hub/models--some--tiny-model/snapshots"
printf '%s' $revision >"$hub/models--some--tiny-model/refs/main"
mv model "$hub/models--some--tiny-model/snapshots/$revision"
run 0 eval --base "$hub/models--some--tiny-model/snapshots/$revision" --data valid.jsonl --prefix prefix.h5 --precision f32 --threads 2
sed 's/[0-9.]* s$//' out >by_path
for place in "HF_HUB_CACHE=$hub" "HF_HOME=$PWD/home"; do
    env "$place" "$KVFOLD" eval --base some/tiny-model --data valid.jsonl --prefix prefix.h5 --precision f32 --threads 2 >out 2>err ||
        fail "$place: $(cat err)"
    sed 's/[0-9.]* s$//' out >by_name
    same by_path by_name
done
mkdir -p user/.cache/huggingface
mv home/hub user/.cache/huggingface/
unset HF_HUB_CACHE HF_HOME XDG_CACHE_HOME
HOME=$PWD/user
export HOME
run 0 eval --base some/tiny-model --data valid.jsonl --threads 2
run 0 inspect some/tiny-model
has out 'model.embed_tokens.weight'
run 1 eval --base some/tiny-model --data valid.jsonl --prefix some/tiny-model
has err 'some/tiny-model: is a base, not a prefix: use it with --base'
run 0 train --base some/tiny-model --data train.jsonl --method direct --steps 1 --precision f32 --out hub.h5
run 0 inspect hub.h5
has out 'base_name *some/tiny-model'

# a prefix as a repository: written, found again by its name, and refused where it is a run or damaged
run 0 train --base some/tiny-model --data train.jsonl --valid valid.jsonl --method direct --steps 2 --precision f32 --out mine.h5
run 2 export mine.h5 --format hub-repo --out repository
has err 'mine.h5: is a run: `kvfold merge` makes the prefix that a repository holds'
run 0 merge mine.h5 --out mine_prefix.h5
run 0 inspect mine_prefix.h5
has out 'run_valid_loss'
repository=user/.cache/huggingface/hub/models--me--talk
mkdir -p $repository/refs $repository/snapshots
printf '%s' $revision >$repository/refs/main
run 0 export mine_prefix.h5 --format hub-repo --base-id some/tiny-model --out $repository/snapshots/$revision
cd $repository/snapshots/$revision || exit 1
for file in README.md adapter_config.json adapter_model.safetensors prefix.h5 prefix.safetensors; do
    [ -s $file ] || fail "$file is absent"
done
[ "$(ls | wc -l)" -eq 5 ] || fail "files: $(ls)"
has README.md '^base_model: "some/tiny-model"$'
has README.md '^kvfold generate --base BASE --prefix REPO'
has README.md '"run_valid_loss"'
has README.md '^    - type: valid_loss$'
cd - >/dev/null || exit 1
same mine_prefix.h5 $repository/snapshots/$revision/prefix.h5
run 0 eval --base some/tiny-model --data valid.jsonl --prefix mine_prefix.h5 --precision f32 --threads 2
sed 's/[0-9.]* s$//' out >by_path
run 0 eval --base some/tiny-model --data valid.jsonl --prefix me/talk --precision f32 --threads 2
sed 's/[0-9.]* s$//' out >by_name
same by_path by_name
run 0 inspect me/talk
has out 'run_valid_loss'
run 0 import me/talk --out imported.h5
run 0 export me/talk --format hub-repo --out again
same mine_prefix.h5 again/prefix.h5
run 2 diff imported.h5 $repository/snapshots/$revision
has err 'compare files of one kind'
cp $repository/snapshots/$revision/prefix.safetensors other.h5
run 1 eval --base some/tiny-model --data valid.jsonl --prefix other.h5
has err 'other.h5: not an HDF5 file'
run 0 train --base some/tiny-model --data train.jsonl --method direct --ffn-length 2 --steps 1 --precision f32 --out wide.h5
run 0 merge wide.h5 --out wide_prefix.h5
run 0 export wide_prefix.h5 --format hub-repo --out wide
[ "$(ls wide | tr '\n' ' ')" = 'README.md prefix.h5 ' ] || fail "virtual neurons have no form in PEFT: $(ls wide)"
has wide/README.md '^library_name: kvfold$'
head -c 5000 mine_prefix.h5 >damaged.h5
run 1 export damaged.h5 --format hub-repo --out damaged
absent damaged repository
head -c 5000 mine_prefix.h5 >$repository/snapshots/$revision/prefix.h5
run 1 eval --base some/tiny-model --data valid.jsonl --prefix me/talk
has err 'prefix.h5: '

failing "eval: some/other: cannot open: No such file or directory, nor is it in the Hugging Face cache $HOME/.cache/huggingface/hub: \`hf download some/other\` fetches it" \
    eval --base some/other --data valid.jsonl
failing 'eval: llama/other: cannot open: No such file or directory' eval --base llama/other --data valid.jsonl
failing 'eval: other: cannot open: No such file or directory' eval --base other --data valid.jsonl
failing 'eval: ./some/other: cannot open: No such file or directory' eval --base ./some/other --data valid.jsonl
absent o.h5 o.html o.jsonl
