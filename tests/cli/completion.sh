# The completions contain every command, every option, and its possible values.
for shell in bash zsh fish; do
    run 0 completion $shell
    err_is
    mv out completion.$shell
done
for command in train merge inspect eval generate import export bench completion; do
    "$KVFOLD" $command --help all | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p' >options.txt
    [ -s options.txt ] || fail "no options in $command --help"
    while read -r option; do
        grep -q -e "from $command' -l $option " completion.fish || fail "fish: $command --$option"
        sed -n "/^        $command)/,/;;/p" completion.zsh | grep -q -e "'--$option\[" ||
            fail "zsh: $command --$option"
    done <options.txt
done

# if bash is available: the completions it offers
offers() {
    expected=$1
    shift
    found=$(bash -c '. ./completion.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kvfold
                     printf "%s " "${COMPREPLY[@]}"' bash "$@")
    [ "$found" = "$expected " ] || fail "bash: $*: offers \"$found\", want \"$expected \""
}
touch run.h5
if command -v bash >/dev/null; then
    offers train kvfold tra
    offers '--prefix-length' kvfold train --prefix-l
    offers 'f32 f16 bf16 int8' kvfold merge run.h5 --dtype ''
    offers 'f16' kvfold merge run.h5 --dtype f1
    offers 'run.h5' kvfold merge run
    offers 'run.h5' kvfold eval --prefix run
    offers '' kvfold train --prefix-length ''
    offers 'bash' kvfold completion ba
else
    skip 'completion.bash: no bash'
fi
for shell in zsh fish; do
    if command -v $shell >/dev/null; then
        $shell -n completion.$shell || fail "$shell does not read it"
    else
        skip "completion.$shell: no $shell"
    fi
done

run 2 completion tcsh
out_is
err_is 'kvfold: completion: shell "tcsh": want bash, zsh or fish; try kvfold completion --help'
run 2 completion
