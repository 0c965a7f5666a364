# The manual and --help name the same commands, options, arguments and plain defaults.
man=$SOURCE/src/cli/kvfold.1
commands=$("$KVFOLD" --help | sed -n '/^commands /,/^  help/s/^  \([a-z][a-z-]*\) .*/\1/p')

# "--name ARGUMENT|DEFAULT" of every option of a command, from --help.
from_help() {
    "$KVFOLD" "$1" --help | awk '
        function flush(   initial) {
            if (option == "") return
            initial = match(text, /\(default: [^)]*\)/) ? substr(text, RSTART + 10, RLENGTH - 11) : ""
            print option "|" initial
            option = ""
        }
        /^  --/ { flush(); option = $1; text = ""; n = split($0, part, /  +/)
                  option = part[2]; for (i = 3; i <= n; i++) text = text " " part[i]; next }
        /^ / { sub(/^ +/, ""); text = text " " $0; next }
        { flush() }
        END { flush() }'
}

# The same from a section of the manual.
from_man() {
    awk -v section="$1" '
        function flush(   initial) {
            if (option == "") return
            gsub(/ +/, " ", text)
            initial = match(text, /\(default: [^)]*\)/) ? substr(text, RSTART + 10, RLENGTH - 11) : ""
            print option "|" initial
            option = ""
        }
        /^\.S[sh] / { flush(); name = $0; sub(/^\.S[sh] /, "", name); inside = name == section; next }
        !inside { next }
        /^\.It Fl -/ { flush(); option = "-" $3 (NF > 3 ? " " $5 : ""); text = ""; next }
        /^\.El/ { flush() }
        { sub(/^\.[A-Z][a-z] /, ""); text = text " " $0 }
        END { flush() }' "$man"
}

[ -n "$commands" ] || fail 'no commands in --help'
for command in $commands; do
    grep -q "^\.Ss $command\$" "$man" || fail "the manual has no section on $command"
    [ "$command" != help ] || continue
    from_help "$command" | sort >help.txt
    {
        from_man "$command"
        from_man 'Common options'
        # sweep has train's options but for those that its own section lists, and those it refuses
        [ "$command" != sweep ] || from_man train | grep -v -e '^--out ' -e '^--recipe ' -e '^--method ' \
            -e '^--log ' -e '^--forecast ' -e '^--infix|' -e '^--prefix-dropout-per-row|' -e '^--unfreeze ' \
            -e '^--base-lr ' -e '^--base-dropout ' -e '^--adapter-' -e '^--task-prefix ' -e '^--mix '
    } | sort >man.txt
    [ -s help.txt ] || fail "no options in $command --help"
    cut -d '|' -f 1- help.txt | sed 's/|[^|]*$//' >help_options.txt
    sed 's/|[^|]*$//' man.txt >man_options.txt
    diff help_options.txt man_options.txt >difference ||
        fail "$command: options of --help (<) and manual (>): $(cat difference)"
    # defaults that are one plain word
    grep -E '\|[A-Za-z0-9.%]+$' help.txt | grep -v 'every N|epoch$' >plain.txt
    while IFS= read -r line; do
        grep -qxF -e "$line" man.txt || fail "$command: the manual does not say: $line"
    done <plain.txt
done
sed -n 's/^\.Ss //p' "$man" | grep -v '^Common options$' | while read -r section; do
    echo "$commands" | grep -qx "$section" || echo "$section"
done >unknown.txt
[ ! -s unknown.txt ] || fail "the manual has sections on no command: $(cat unknown.txt)"
# the groups of the commands, in one order
"$KVFOLD" --help | sed -n -e '/^commands /,/^  help/s/^  \([a-z][a-z-]*\) .*/\1/p' -e 's/^commands to \(.*\):$/\1:/p' >groups.txt
sed -n '/^The commands are, to$/,/^\.El$/p' "$man" | sed -n -e 's/^\.It \(.*\)$/\1:/p' -e 's/^\.Cm \([a-z-]*\).*/\1/p' >man_groups.txt
diff groups.txt man_groups.txt >difference || fail "groups of --help (<) and manual (>): $(cat difference)"
for topic in glossary files methods tasks metrics formats logs numbers clusters sweeps scaling; do
    has "$man" "^\.Cm $topic"
done
if command -v mandoc >/dev/null; then
    mandoc -Tlint "$man" >lint.txt 2>&1 || fail "$(cat lint.txt)"
fi
