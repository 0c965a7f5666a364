# Help goes to standard output and exits 0, and shows defaults; --version names the libraries.
commands="train merge inspect eval predict score generate import export new-base serve bench compare sweep words distill compose diff prune quantize convert-position unmerge report completion"

run 0 --help
err_is
mv out program
has program '^usage: kvfold COMMAND'
awk 'length > 80 { exit 1 }' program || fail 'wider than 80 columns'
for word in $commands help; do
    has program "^  $word "
done
run 0 help
same program out
run 0 -h
same program out

for command in $commands; do
    run 0 "$command" --help
    err_is
    has out "^usage: kvfold $command "
    has out '^  --help '
    awk 'length > 80 { exit 1 }' out || fail "$command --help is wider than 80 columns"
    mv out first
    run 0 "$command" -h
    same first out
    run 0 help "$command"
    same first out
    # help overrides other wrong or missing arguments after it
    run 0 "$command" --help --no-such-option
    same first out
    run 0 "$command" --help all
    for option in threads json quiet help; do
        has out "^  --$option "
    done
    awk 'length > 80 { exit 1 }' out || fail "$command --help all is wider than 80 columns"
    grep -q 'help all` shows' first || same first out # a short help or all of it
done

# the common options by group, an example of each task, and the number of other options
run 0 train --help
[ "$(grep -c '^  --' out)" -le 25 ] || fail 'train --help has more than 25 options'
for line in '^data:' '^method:' '^examples:' 'task seq-cls' 'task token-cls' 'task qa' 'task multiple-choice'; do
    has out "$line"
done
others=$(sed -n 's/.*--help all` shows the other \([0-9]*\) options.*/\1/p' out)
[ $((others + $(grep -c '^  --' out))) -eq "$("$KVFOLD" train --help all | grep -c '^  --')" ] || fail "$others others"
run 0 train --help all
has out 'virtual tokens P (default: 20; prefixes for lm 64, for$'
has out '^ *token-cls on bidirectional bases 40)$'
has out "rows per step (qa, multiple-choice: questions)"
has out 'see help methods (default: mlp)'
run 0 generate --help
has out 'maximum number of new tokens (default: 64)'

for topic in glossary files methods tasks metrics formats logs numbers clusters sweeps experiments scaling usage environment; do
    run 0 help $topic
    err_is
    [ -s out ] || fail "help $topic is empty"
    case " $commands " in
    *" $topic "*) fail "help $topic shows the command" ;;
    esac
    has program "$topic"
done
run 2 help nothing
out_is
err_is 'kvfold: help: topic "nothing" is not known; try kvfold --help'
run 0 help glossary
has out '^encoder   trainable parameters'
run 0 help methods
for field in '{p}' '{text}' '{text_pair}' '{prompt}' '{completion}' '\[MASK\]'; do
    has out "^  .*$field .* "
done
run 2 help glosary
err_is 'kvfold: help: topic "glosary" is not known, the nearest is glossary; try kvfold --help'

run 0 --version
err_is
has out '^kvfold [0-9.]* (oneDNN [0-9.]*, HDF5 [0-9.]*)$'

# every topic named by a message or a help text exists
grep -aoE '(see|kvfold) `?(kvfold )?help [a-z-]+' "$KVFOLD" | sed 's/.* //' | sort -u >topics
[ "$(wc -l <topics)" -ge 6 ] || fail "few topics: $(cat topics)"
while read -r topic; do
    run 0 help "$topic"
done <topics
