# Adapters between kvfold and PEFT on encoder-decoders (tests/golden/make_peft_trained.py). A prefix
# trained with --places peft is exported as the bytes that PEFT loaded, and scores as in PEFT.
# PEFT's further training of it, imported and exported again, gives the same.
golden=$SOURCE/tests/golden

# scores NAME PREFIX: scores of the golden rows equal those of peft_trained/FAMILY/NAME.txt.
scores() {
    run 0 score --base "$base" --prefix "$2" --data "$golden/peft_trained/rows.jsonl" --precision f32 --threads 2 --out lines --force
    sed 's/.*"logprobs":\[\([^]]*\)\].*/\1/' lines | tr ',' '\n' >got
    tr ' ' '\n' <"$stored/$1.txt" >want
    paste got want | awk 'NF != 2 || $1 - $2 > 1e-5 || $2 - $1 > 1e-5 { bad = 1 } END { exit bad || NR != 42 }' || # measured: 1.5e-6
        fail "$family, $2: $(paste got want)"
}
# equal A B: the keys and values of two files
equal() {
    run 0 diff "$1" "$2" --tensors-only --json
    has out '"max_abs":0.0'
}
for family in t5 bart; do
    stored=$golden/peft_trained/$family
    base=$golden/$family
    [ $family = bart ] || base=$golden/model_t5
    scores exported "$stored/prefix.h5"
    run 0 export "$stored/prefix.h5" --out $family
    same $family/adapter_model.safetensors "$stored/exported/adapter_model.safetensors"
    same $family/adapter_config.json "$stored/exported/adapter_config.json"
    run 0 import $family --base "$base" --out $family.h5
    equal $family.h5 "$stored/prefix.h5"
    scores exported $family.h5

    run 0 import "$stored/continued" --base "$base" --out continued_$family.h5
    scores continued continued_$family.h5
    run 0 export continued_$family.h5 --out continued_$family
    run 0 import continued_$family --base "$base" --out back_$family.h5
    equal continued_$family.h5 back_$family.h5
    scores continued back_$family.h5
done

# T5 has only relative positions, so --position-start changes nothing; BART's tokens begin at P in
# PEFT
how='--places peft --method direct --prefix-length 3 --steps 1 --precision f32 --threads 2 --position-start 7'
# shellcheck disable=SC2086 # words
run 0 train --base "$golden/model_t5" --data "$golden/peft_trained/rows.jsonl" $how --out moved.h5
run 0 export moved.h5 --out moved
run 0 import moved --base "$golden/model_t5" --out unmoved.h5
for file in moved unmoved; do
    run 0 score --base "$golden/model_t5" --prefix $file.h5 --data "$golden/peft_trained/rows.jsonl" --precision f32 --threads 2 --out $file.jsonl
done
same moved.jsonl unmoved.jsonl
# shellcheck disable=SC2086
run 0 train --base "$golden/bart" --data "$golden/peft_trained/rows.jsonl" $how --out late.h5
run 1 export late.h5 --out late
err_is 'kvfold: export: late: position_start is 7, but PEFT always starts tokens at P = 3'
