# Folders of ...ForSequenceClassification (tests/golden/make_seq_cls_golden.py). A seq-cls run
# begins with their head, which with a prefix in all places gives transformers' probabilities.
# Outputs are matched by label names. A head that does not fit is reported and ignored.
golden=$SOURCE/tests/golden/seq_cls
how="--task seq-cls --method direct --prefix-length 4 --lr 1e-30 --steps 1 --batch-size 6 --precision f32 --threads 2 --force"

# started FAMILY LABELS ROWS...: an untrained run that begins with the stored prefix and its head
started() {
    family=$1 labels=$2 rows=$3
    shift 3
    # shellcheck disable=SC2086 # words
    run 0 train --base "$golden/$family" --data "$rows" --labels "$labels" --init-kv "$golden/$family/prefix.h5" --head-lr 1e-30 $how \
        --out run.h5 "$@"
}
# answers LABEL...: the probabilities of these labels for the run's rows equal the golden ones
answers() {
    run 0 predict --base "$golden/$family" --prefix run.h5 --data "$rows" --precision f32 --threads 2 --out lines --force
    for label; do
        sed "s/.*\"$label\":\([0-9.e-]*\)[,}].*/\1/" lines >"got.$label"
    done
    paste "got.$1" "got.$2" "got.$3" | tr '\t' ' ' | tr ' ' '\n' >got
    tr ' ' '\n' <"$golden/$family/want.txt" >want
    [ "$(paste got want | awk 'NF == 2 && $1 - $2 < 1e-5 && $2 - $1 < 1e-5' | wc -l)" = 18 ] || # measured: 1e-7
        fail "$family, $labels: $(paste got want)"
}
for family in t5 bart; do
    started $family cat,dog,end "$golden/rows.jsonl"
    has out "^initial head: that of $golden/$family"
    answers cat dog end
done

# labels by name, in any order; by number; unknown names
started t5 end,dog,cat "$golden/rows.jsonl"
answers cat dog end
sed 's/"cat"/"1"/; s/"dog"/"2"/; s/"end"/"0"/' "$golden/rows.jsonl" >numbers.jsonl
started t5 0,1,2 numbers.jsonl
answers 1 2 0
sed 's/"cat"/"cow"/' "$golden/rows.jsonl" >cows.jsonl
started t5 cow,dog,end cows.jsonl
has out "^the head of $golden/t5 is not used: none of its labels is \"cow\", the first is \"END\""
grep -v '"end"' "$golden/rows.jsonl" >two.jsonl
started bart cat,dog two.jsonl
has out "^the head of $golden/bart is not used: its classification_head.out_proj.weight is \[3, 16\], want \[2, 16\]"

# without the language-model head's matrix, which such a class does not use: only language modelling
# is refused
mkdir untied
cp "$golden"/t5/* untied
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "$golden/t5/config.json" >untied/config.json
has untied/config.json '"tie_word_embeddings": false'
printf '{"prompt": "a dene", "completion": "b"}\n' >lm.jsonl
for base in untied untied.h5; do
    [ $base = untied ] || run 0 import untied --out untied.h5
    run 1 eval --base $base --data lm.jsonl --precision f32
    has err "kvfold: eval: this t5 has no language-model head, because the class in its config has a task head"
done
# shellcheck disable=SC2086
run 0 train --base untied --data "$golden/rows.jsonl" --labels cat,dog,end --init-kv untied/prefix.h5 --head-lr 1e-30 $how --out run.h5
run 0 predict --base untied --prefix run.h5 --data "$golden/rows.jsonl" --precision f32 --threads 2 --out untied.jsonl
started t5 cat,dog,end "$golden/rows.jsonl"
run 0 predict --base "$golden/t5" --prefix run.h5 --data "$golden/rows.jsonl" --precision f32 --threads 2 --out tied.jsonl
same untied.jsonl tied.jsonl

# another class of transformers has the head of another task; a run with --init-from takes the
# file's head; a resumed run equals an unbroken one
mkdir other
cp "$golden"/bart/*.json "$golden/bart/model.safetensors" other
sed 's/BartForSequenceClassification/BartForQuestionAnswering/' "$golden/bart/config.json" >other/config.json
# shellcheck disable=SC2086
run 0 train --base other --data "$golden/rows.jsonl" $how --out new.h5
grep -q '^the head' out && fail "of another class: $(cat out)"
# shellcheck disable=SC2086
run 0 train --base "$golden/bart" --data "$golden/rows.jsonl" $how --init-from new.h5 --out from.h5 --allow-other-base
grep -q '^initial head' out && fail "with --init-from: $(cat out)"
fit="--base $golden/t5 --data $golden/rows.jsonl --task seq-cls --method mlp --schedule constant --schedule-steps 4 --precision f32 --threads 2"
# shellcheck disable=SC2086
for steps in 2 4; do
    run 0 train $fit --steps $steps --out parts.h5 --resume
done
# shellcheck disable=SC2086
run 0 train $fit --steps 4 --out whole.h5
same parts.h5 whole.h5

# Files written by save_pretrained and save_model of transformers 5: Nomic's first names, one name
# for a tied embedding (tests/golden/make_saved_golden.py)
saved=$SOURCE/tests/golden/saved
printf '{"text":"a b c","label":0}\n{"text":"a b c","label":1}\n' >two.jsonl
run 0 train --base "$saved/nomic" --data two.jsonl --task seq-cls --method head --head-lr 1e-12 --steps 1 --precision f32 --out nomic.h5
has out '^train loss 0.8106'
printf '{"prompt":"a b c","completion":"d e"}\n' >lm.jsonl
run 0 eval --base "$saved/t5" --data lm.jsonl --precision f32
has out '^loss 2.43878'
run 0 import "$saved/roberta" --out roberta.h5

# a class with only one of two stacks (T5ForTokenClassification, BartForCausalLM)
cp -R "$saved/t5" one_stack
LC_ALL=C sed 's/"decoder\.block/"decoded.block/g' "$saved/t5/model.safetensors" >one_stack/model.safetensors
run 1 import one_stack --out none.h5
has err 'tensor decoder.block.0.* is missing; kvfold needs both stacks, encoder and decoder$'
