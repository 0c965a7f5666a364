# Misuse: exit status 2, no standard output, one line with the error and the help command. No file
# is opened or computed before.
misuse() {
    line=$1
    shift
    run 2 "$@"
    out_is
    err_is "kvfold: $line"
}

misuse 'no command is given; try kvfold --help'
misuse 'command "trian" is not known, the nearest is train; try kvfold --help' trian
misuse 'option "--jsn" is not known; try kvfold --help' --jsn
misuse 'help: unexpected argument "words"; try kvfold --help' help files words

misuse 'train: --base PATH is needed; try kvfold train --help' train
misuse 'train: --data FILE is needed; try kvfold train --help' train --base b --out o
misuse 'train: --out RUN.h5 is needed; try kvfold train --help' train --base b --data d
misuse 'merge: RUN.h5 is missing; try kvfold merge --help' merge --out p.h5
misuse 'merge: --out PREFIX.h5 is needed; try kvfold merge --help' merge run.h5
misuse 'merge: unexpected argument "b"; try kvfold merge --help' merge a b --out p.h5
misuse 'inspect: FILE is missing; try kvfold inspect --help' inspect
misuse 'eval: --data FILE is needed; try kvfold eval --help' eval --base b
misuse 'import: PATH is missing; try kvfold import --help' import --out o
misuse 'export: --out PATH is needed; try kvfold export --help' export a

misuse 'train: option --lrr is not known, the nearest is --lr; try kvfold train --help' train --lrr 1
misuse 'train: option --lrr is not known, the nearest is --lr; try kvfold train --help' train --lrr=1
misuse 'train: option --dtaa is not known, the nearest is --data; try kvfold train --help' train --dtaa d
misuse 'train: option --no-such is not known; try kvfold train --help' train --no-such
misuse 'train: option --aaaaaaaaaabbbbbbbbbbccccccccccdddd is not known; try kvfold train --help' \
    train --aaaaaaaaaabbbbbbbbbbccccccccccdddd
misuse 'command "evaal" is not known, the nearest is eval; try kvfold --help' evaal
misuse 'command "anything" is not known; try kvfold --help' anything
misuse 'train: option -l is not known; try kvfold train --help' train -l 1
misuse 'train: --lr needs a value: X; try kvfold train --help' train --lr
misuse 'train: --force takes no value; try kvfold train --help' train --force=yes
misuse 'train: unexpected argument "data"; try kvfold train --help' \
    train --base b --data d --out o data
misuse 'train: unexpected argument "--lr"; try kvfold train --help' \
    train --base b --data d --out o -- --lr 1

all="--base b --data d --out o"
# shellcheck disable=SC2086
for pair in 'lr=fast:a number above 0' 'lr=-1:a number above 0' 'lr=nan:a number above 0' \
    'steps=1.5:a whole number from 0 to 2147483647' 'steps=:a whole number from 0 to 2147483647' \
    'batch-size=99999999999999999999:a whole number from 1 to 2147483647' \
    'method=mlpp:mlp|direct|projected|prompt|p-tuning|adapter|full|head' 'shuffle=yes:on or off' \
    'schedule=step:linear|cosine|constant'; do
    option=${pair%%:*}
    misuse "train: --${option%%=*} \"${option#*=}\": want ${pair#*:}; try kvfold train --help" \
        train $all --"$option"
done
# shellcheck disable=SC2086
misuse 'train: --threads "two": want a whole number from 0 to 2147483647; try kvfold train --help' \
    train $all --threads two
# shellcheck disable=SC2086
misuse 'train: --init text needs --init-text; try kvfold train --help' train $all --init text

misuse 'generate: --prompt TEXT, --data FILE or --interactive is needed; try kvfold generate --help' \
    generate --base b
misuse 'generate: --prompt and --data exclude each other; try kvfold generate --help' \
    generate --base b --prompt p --data d
misuse 'generate: --top-p 1.5: want a number above 0 and at most 1; try kvfold generate --help' \
    generate --base b --prompt p --top-p 1.5
misuse 'generate: --beams and --temperature exclude each other: beam search does not sample; try kvfold generate --help' \
    generate --base b --prompt p --beams 2 --temperature 1
misuse 'generate: --draft and --temperature exclude each other: drafts need greedy decoding; try kvfold generate --help' \
    generate --base b --prompt p --draft 2 --temperature 1
misuse 'generate: --length-penalty needs --beams; try kvfold generate --help' \
    generate --base b --prompt p --length-penalty 2
misuse 'generate: --repetition-penalty 0: want a number from 0.01 to 100; try kvfold generate --help' \
    generate --base b --prompt p --repetition-penalty 0
misuse 'generate: --logit-bias "a=1": want the id of a token, =, and a number from -100 to 100; try kvfold generate --help' \
    generate --base b --prompt p --logit-bias a=1
misuse 'generate: --temperature -1: want a number of at least 0; try kvfold generate --help' \
    generate --base b --prompt p --temperature -1
misuse 'generate: --seed "-1": want a whole number from 0 to 9223372036854775807; try kvfold generate --help' \
    generate --base b --prompt p --seed=-1
misuse 'eval: --precision "f16": want auto|f32|bf16|int8; try kvfold eval --help' \
    eval --base b --data d --precision f16
misuse 'merge: --checkpoint "first": want best|last; try kvfold merge --help' \
    merge r --out p --checkpoint first
misuse 'export: --format "onnx": want peft|safetensors|llamacpp|mlx|tokenizer|transformers|gguf|hub-repo; try kvfold export --help' \
    export a --out b --format onnx
misuse 'eval: threads is 5000, want 1 to 1024, or 0 for all cores; try kvfold eval --help' \
    eval --base b --data d --threads 5000
KVF_CPU=mmx
export KVF_CPU
misuse 'eval: environment: KVF_CPU is "mmx", want ref, avx2, avx512, avx512_bf16 or amx; try kvfold eval --help' \
    eval --base b --data d
