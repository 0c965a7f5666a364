# Failures: exit status 1, one line with file and place, no partial output, no lost file.
make_inputs
"$MAKE_TINY" other 2 || exit 1

# failing LINE ARGUMENTS...
failing() {
    line=$1
    shift
    run 1 "$@"
    out_is
    err_is "kvfold: $line"
}

# missing files, by every command
missing='no-such-file: cannot open: No such file or directory'
failing "train: $missing" train --base no-such-file --data train.jsonl --out new.h5
failing "train: $missing" train --base model --data no-such-file --out new.h5
failing "merge: $missing" merge no-such-file --out new.h5
failing "inspect: $missing" inspect no-such-file
failing "eval: $missing" eval --base no-such-file --data valid.jsonl
failing "eval: $missing" eval --base model --data no-such-file
failing "eval: $missing" eval --base model --data valid.jsonl --prefix no-such-file
failing "generate: $missing" generate --base no-such-file --prompt a
failing "import: $missing" import no-such-file --out new.h5
failing "export: $missing" export no-such-file --out new

# placeholder files, and the commands that fetch or join the real ones
cp -r model pointer
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1000\n' >pointer/model.safetensors
pointer='is a Git LFS pointer, not the file itself: `git lfs pull` in its folder fetches it'
failing "eval: pointer/model.safetensors: $pointer" eval --base pointer --data valid.jsonl
for name in pointer.gguf pointer.jsonl pointer.h5; do
    cp pointer/model.safetensors $name
done
failing "eval: pointer.gguf: $pointer" eval --base pointer.gguf --data valid.jsonl
failing "eval: pointer.jsonl: $pointer" eval --base model --data pointer.jsonl
failing "eval: pointer.h5: $pointer" eval --base model --prefix pointer.h5 --data valid.jsonl
failing "import: pointer.h5: $pointer" import pointer.h5 --out new.h5
cp -r model page
printf '<!DOCTYPE html>\n<html></html>\n' >page/config.json
failing 'eval: page/config.json: is a web page, not the file itself: download it again, from the Hub with `hf download`' \
    eval --base page --data valid.jsonl
cp page/config.json a.gguf.part2of3
failing 'eval: a.gguf.part2of3: is part 2 of 3 of a file: `cat a.gguf.part{1..3}of3 >a.gguf` in bash joins them' \
    eval --base a.gguf.part2of3 --data valid.jsonl
failing 'eval: a.gguf.part2of3: is part 2 of 3 of a file: `cat a.gguf.part{1..3}of3 >a.gguf` in bash joins them' \
    eval --base model --prefix a.gguf.part2of3 --data valid.jsonl
HF_HOME=home
export HF_HOME
failing 'import: org/name: cannot open: No such file or directory, nor is it in the Hugging Face cache home/hub: `hf download org/name` fetches it' \
    import org/name --out new.h5
failing 'eval: org/name: cannot open: No such file or directory, nor is it in the Hugging Face cache home/hub: `hf download org/name` fetches it' \
    eval --base model --prefix org/name --data valid.jsonl
failing 'eval: org/name.h5: cannot open: No such file or directory' eval --base model --prefix org/name.h5 --data valid.jsonl
unset HF_HOME
cp page/config.json a.gguf-split-b
failing 'eval: a.gguf-split-b: is a part of a file: `cat a.gguf-split-? >a.gguf` joins them' eval --base a.gguf-split-b --data valid.jsonl
mkdir folder
cp a.gguf-split-b folder/b.gguf
failing 'eval: folder: is a folder with 1 GGUF file: name the file, folder/b.gguf' eval --base folder --data valid.jsonl
cp a.gguf-split-b folder/a.GGUF
cp model/config.json folder
failing 'eval: folder: is a folder with 2 GGUF files: name one of them, folder/a.GGUF' eval --base folder --data valid.jsonl
for address in https://huggingface.co/org/name hf://org/name https://huggingface.co/org/name/tree/main; do
    failing "eval: $address: is an address, want ORG/NAME: \`hf download org/name\` fetches it" eval --base $address --data valid.jsonl
done

# bad rows
printf '{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n' >row.jsonl
failing 'train: row.jsonl:2: "completion" is missing; the row has prompt (map other names with --map)' \
    train --base model --data row.jsonl --out new.h5
: >empty.jsonl
run 1 train --base model --data empty.jsonl --out new.h5
has err '^kvfold: train: empty.jsonl: '
printf '{"prompt": "a", \n' >broken.jsonl
run 1 eval --base model --data broken.jsonl
has err '^kvfold: eval: broken.jsonl:1: '

# an existing output is not changed
printf 'precious' >there.h5
cp there.h5 copy.h5
failing 'train: there.h5: exists (--force replaces it, --resume continues it)' \
    train --base model --data train.jsonl --out there.h5
same copy.h5 there.h5
train 1 --out no/such/folder.h5
[ "$(wc -l <err)" -eq 1 ] || fail "not one line: $(cat err)"

train 0 --out run.h5 --steps 2
err_is
run 0 merge run.h5 --out prefix.h5
failing 'merge: there.h5: exists (use --force to replace it)' merge run.h5 --out there.h5
same copy.h5 there.h5
run 0 merge run.h5 --out there.h5 --force
same prefix.h5 there.h5
run 0 export prefix.h5 --out peft
run 1 export prefix.h5 --out peft
has err '^kvfold: export: .*exists'
run 1 import peft --out prefix.h5
has err '^kvfold: import: prefix.h5: exists'
same prefix.h5 there.h5

# another base
run 1 eval --base other --data valid.jsonl --prefix prefix.h5
[ "$(wc -l <err)" -eq 1 ] || fail "not one line: $(cat err)"
has err 'allow-other-base'
run 0 eval --base other --data valid.jsonl --prefix prefix.h5 --allow-other-base
run 1 generate --base other --prompt a --prefix prefix.h5
run 0 generate --base other --prompt a --prefix prefix.h5 --allow-other-base
run 1 train --base other --data train.jsonl --out run.h5 --resume --steps 2
has err '^kvfold: train: run.h5: the run was created with a different base'

# damaged files
head -c 5000 prefix.h5 >cut.h5
printf 'not a model' >text.gguf
for file in cut.h5 text.gguf empty.jsonl; do
    run 1 inspect $file
    out_is
    has err "^kvfold: inspect: $file: "
    [ "$(wc -l <err)" -eq 1 ] || fail "not one line: $(cat err)"
done
run 1 eval --base model --data valid.jsonl --prefix cut.h5
has err '^kvfold: eval: cut.h5: '

# text quoted in an error cannot break its line or control the terminal
run 1 inspect "$(printf 'a\nb\033[31m')"
err_is 'kvfold: inspect: a b?[31m: cannot open: No such file or directory'

# results that cannot be written
if [ -e /dev/full ]; then
    "$KVFOLD" eval --base model --data valid.jsonl >/dev/full 2>err
    [ $? -eq 1 ] || fail 'a full disk is not noticed'
    err_is 'kvfold: eval: standard output: No space left on device'
    "$KVFOLD" --help >/dev/full 2>err
    [ $? -eq 1 ] || fail 'a full disk is not noticed by --help'
fi
mkfifo pipe
true <pipe & # closes its end at once
{ wait $!; "$KVFOLD" inspect prefix.h5; echo $? >code; } >pipe 2>err
[ "$(cat code)" -eq 141 ] || fail "closed pipe: exit status $(cat code)"
err_is
"$KVFOLD" eval --base model --data valid.jsonl >&- 2>err
[ $? -eq 1 ] || fail 'a closed standard output is not noticed'
err_is 'kvfold: eval: standard output: Bad file descriptor'

absent new.h5 new
absent ./*.tmp.*
