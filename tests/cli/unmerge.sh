# Conversion of prefixes in both directions: unmerge, convert-position.
make_inputs

train 0 --out run.h5 --method direct --prefix-length 4 --steps 3 --quiet
run 0 merge run.h5 --out prefix.h5
run 0 eval --base model --data valid.jsonl --prefix prefix.h5 --precision f32 --json
loss=$(value loss)

# back to an encoder that folds to the same prefix
run 0 unmerge prefix.h5 --out back.h5 --encoder-hidden 16 --seed 3 --base model --json
[ "$(value encoder_hidden)" = 16 ] || fail "M is $(value encoder_hidden)"
value residual | awk '{ exit !($1 < 1e-4) }' || fail "residual $(value residual)"
run 0 eval --base model --data valid.jsonl --prefix back.h5 --precision f32 --json
value loss | awk -v want="$loss" '{ d = $1 - want; exit !(d * d < 1e-8) }' || fail "unmerged: $(value loss), not $loss"
run 0 unmerge prefix.h5 --out seen.h5
has out '^seen.h5: run of method mlp at step 0, P 4, M 512, '
has out '^relative error of the emitted prefix: [0-9.]*e-'
train 0 --out more.h5 --init-from back.h5 --prefix-length 4 --encoder-hidden 16 --steps 2
run 1 unmerge prefix.h5 --out back.h5
err_is 'kvfold: unmerge: back.h5: exists (use --force to replace it)'
run 2 unmerge run.h5 --out none.h5
err_is 'kvfold: unmerge: run.h5: is a file of kind run, want a prefix file; try kvfold unmerge --help'
run 2 unmerge prefix.h5 --out none.h5 --encoder-hidden 2
has err '^kvfold: unmerge: prefix.h5: method mlp with M = 2 reaches a relative error of [0-9.e-]*, want at most 1e-02: use a wider --encoder-hidden (P is 4), or --approximate to accept the error; try'
absent none.h5
run 0 unmerge prefix.h5 --out near.h5 --encoder-hidden 2 --approximate

# rows from another position
run 0 convert-position prefix.h5 --base model --position-start 9 --out moved.h5
out_is 'moved.h5: position_start 9, was 4'
run 0 eval --base model --data valid.jsonl --prefix moved.h5 --precision f32 --json
value loss | awk -v want="$loss" '{ d = $1 - want; exit !(d * d < 1e-10) }' || fail "moved: $(value loss), not $loss"
run 1 export moved.h5 --out peft
has err 'position_start is 9, but PEFT always starts tokens at P = 4$'
run 0 convert-position moved.h5 --base model --position-start P --out home.h5 --json
[ "$(value from) $(value to)" = '9 4' ] || fail "from $(value from) to $(value to)"
run 0 export home.h5 --out peft
run 2 convert-position prefix.h5 --base model --position-start x --out none.h5
err_is 'kvfold: convert-position: --position-start: want P or a whole number from 0 to 2^31 - 1, found "x"; try kvfold convert-position --help'
run 2 convert-position prefix.h5 --base model --out none.h5
err_is 'kvfold: convert-position: --position-start P|N is needed; try kvfold convert-position --help'
absent none.h5
train 0 --out from_moved.h5 --method direct --init-from moved.h5 --steps 1
has out 'moved.h5: text after its prefix starts at position 9, but in this run at 4; use --position-start 9 to keep it$'

# another program's checkpoint: the command that converts it, and the resulting folder
run 2 import "$SOURCE/tests/golden/foreign_prefixes/li_liang.safetensors" --out none.h5
has err 'name the base with --base; try kvfold import --help$'
run 1 import "$SOURCE/tests/golden/foreign_prefixes/cartridge.safetensors" --base model --out none.h5
has err 'cartridge.safetensors: is not the state dict .* (python -m kvfold.from_pickle converts prefixes of other programs)$'
run 1 import "$SOURCE/tests/golden/foreign_prefixes/ah_bert" --out none.h5
has err 'ah_bert: adapter_model.safetensors is not there (python -m kvfold.from_pickle makes it from AdapterHub.s prefixes)$'
run 2 import prefix.h5 --from bert --out none.h5
has err '^kvfold: import: --from '
absent none.h5
run 0 import "$SOURCE/tests/golden/foreign_prefixes/peft_cartridge" --out cartridge.h5 --json
[ "$(value kind)" = '"prefix"' ] || fail "kind is $(value kind)"
run 0 inspect cartridge.h5

# a GGUF as a base file: the same model
gguf=$SOURCE/tests/golden/gguf_bpe.gguf
run 0 import "$gguf" --out from_gguf.h5
out_is 'from_gguf.h5: base file'
run 0 eval --base "$gguf" --data valid.jsonl --precision f32 --json
sed 's/"seconds":[^,}]*//' out >gguf.measured
run 0 eval --base from_gguf.h5 --data valid.jsonl --precision f32 --json
sed 's/"seconds":[^,}]*//' out >file.measured
same gguf.measured file.measured
run 1 import "$gguf" --out from_gguf.h5
err_is 'kvfold: import: from_gguf.h5: exists (use --force to replace it)'
