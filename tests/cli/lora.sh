# A LoRA on the base: a prefix trained on base and LoRA requires both, and is refused with only one
# of them.
"$MAKE_TINY" model 1 llama && "$MAKE_TINY" lora 5 lora && "$MAKE_TINY" lora2 6 lora
cat >train.jsonl <<'END'
{"prompt":"one","completion":" after"}
{"prompt":"two","completion":" before"}
{"prompt":"three","completion":" beside"}
END
train="train --base model --data train.jsonl --prefix-length 2 --encoder-hidden 4 --threads 1 --precision f32 --quiet"
loss() {
    run 0 eval --base model --data train.jsonl --threads 1 --precision f32 --json "$@"
    value loss
}

# Differs from the bare base.
bare=$(loss)
[ "$(loss --lora lora)" != "$bare" ] || fail 'eval is the same with a LoRA'
[ "$(loss --lora lora2)" != "$(loss --lora lora)" ] || fail 'eval is the same with another LoRA'

# Trained, stopped, continued and folded: equal to an unbroken run.
run 0 $train --lora lora --out whole.h5 --steps 4 --schedule constant
run 0 $train --lora lora --out run.h5 --steps 2 --schedule constant
run 1 $train --out run.h5 --steps 4 --schedule constant --resume
has err 'the run was created with a different base or tokenizer (.*); --resume cannot change it$'
run 0 $train --lora lora --out run.h5 --steps 4 --schedule constant --resume
run 0 merge run.h5 --out prefix.h5 --probe train.jsonl --base model --lora lora
has out '^largest difference of logits: 0$'
run 0 merge whole.h5 --out whole_prefix.h5
live=$(loss --lora lora --prefix run.h5)
[ "$(loss --lora lora --prefix prefix.h5)" = "$live" ] || fail 'the folded prefix is not the run'
[ "$(loss --lora lora --prefix whole_prefix.h5)" = "$live" ] || fail 'the resumed run is another'

# Accepted on that base only.
run 0 inspect prefix.h5
has out 'model+lora'
for other in '' '--lora lora2'; do
    run 1 eval --base model $other --data train.jsonl --prefix prefix.h5
    has err 'the prefix is for base model+lora ([0-9a-f]*), but this one is [0-9a-f]* (--allow-other-base overrides)$'
done
run 0 $train --out plain.h5 --steps 1
run 1 eval --base model --lora lora --data train.jsonl --prefix plain.h5
has err 'the prefix is for base model ([0-9a-f]*), but this one is'
run 0 eval --base model --lora lora --data train.jsonl --prefix plain.h5 --allow-other-base

# Methods that train the base begin with the folded weights; their folded files need no LoRA.
run 0 train --base model --lora lora --data train.jsonl --out full.h5 --method full --steps 1 --lr 1e-9 --quiet --precision f32
run 0 merge full.h5 --base model --lora lora --out full_base.h5
was=$(loss --lora lora)
run 0 eval --base full_base.h5 --data train.jsonl --precision f32 --json
awk -v a="$(value loss)" -v b="$was" 'BEGIN { exit !(a - b < 1e-4 && b - a < 1e-4) }' || fail "loss $(value loss), want $was"
run 0 train --base model --lora lora --data train.jsonl --out ad.h5 --method adapter --steps 1 --quiet
run 0 eval --base model --lora lora --data train.jsonl --prefix ad.h5
run 0 generate --base model --lora lora --prompt one --max-tokens 4 --prefix prefix.h5

timeout -s INT 5 "$KVFOLD" serve --base model --lora lora --port 0 --prefix x=prefix.h5 >out 2>err
grep -q '^listening on' out || grep -q 'built without libmicrohttpd' err || fail "serve: $(cat err)"

# Misuse, and LoRA folders that cannot be folded.
run 2 merge run.h5 --out no.h5 --lora lora
err_is 'kvfold: merge: --lora needs --base; try kvfold merge --help'
run 1 eval --base model --lora model --data train.jsonl
has err '^kvfold: eval: model/adapter_config.json: '
cp -r lora dora
sed 's/"use_dora":false/"use_dora":true/' lora/adapter_config.json >dora/adapter_config.json
run 1 eval --base model --lora dora --data train.jsonl
err_is 'kvfold: eval: dora/adapter_config.json: "use_dora" is set, but only plain LoRA can be folded'
absent no.h5
