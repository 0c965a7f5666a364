# The manual, kvfold(1) and a page for each command, agrees with --help: the same commands, options,
# arguments and defaults.
commands=$("$KVFOLD" --help | sed -n '/^commands /,/^  help/s/^  \([a-z][a-z-]*\) .*/\1/p' | grep -vx help)

# "--name ARGUMENT|DEFAULT" of every option of a command, from --help.
from_help() {
    "$KVFOLD" "$1" --help all | awk '
        function flush(   initial) {
            if (option == "") return
            initial = match(text, /\(default: [^)]*\)/) ? substr(text, RSTART + 10, RLENGTH - 11) : ""
            print option "|" initial
            option = ""
        }
        /^  --/ { flush(); option = $1; text = ""; n = split($0, part, /  +/)
                  option = part[2]; for (i = 3; i <= n; i++) text = text " " part[i]; next }
        /^      [^ ]/ { option = option $1; next } # more alternatives
        /^ / { sub(/^ +/, ""); text = text " " $0; next }
        { flush() }
        END { flush() }'
}

# The same from a page.
from_man() {
    awk '
        function flush(   initial) {
            if (option == "") return
            gsub(/ +/, " ", text)
            initial = match(text, /\(default: [^)]*\)/) ? substr(text, RSTART + 10, RLENGTH - 11) : ""
            print option "|" initial
            option = ""
        }
        /^\.It Fl -/ { flush(); text = ""; option = "-" $3
                       if (NF > 3) { sub(/^[^"]*"/, ""); sub(/"$/, ""); option = option " " $0 }
                       next }
        /^\.El/ { flush() }
        { text = text " " $0 }
        END { flush() }' "$1"
}

lint() {
    command -v mandoc >/dev/null || return 0
    mandoc -Tlint -W warning "$1" 2>&1 | grep -v 'unusual Xr order' >lint.txt # the order of --help
    [ ! -s lint.txt ] || fail "$(cat lint.txt)"
}

[ -n "$commands" ] || fail 'no commands in --help'
"$KVFOLD" --man >kvfold.1 || fail 'no kvfold(1)'
lint kvfold.1
for command in $commands; do
    has kvfold.1 "^\.It Xr kvfold-$command 1\$"
    "$KVFOLD" --man "$command" >page.1 || fail "no page on $command"
    lint page.1
    from_help "$command" | sort >help.txt
    from_man page.1 | sort >man.txt
    [ -s help.txt ] || fail "no options in $command --help"
    diff help.txt man.txt >difference || fail "$command: options of --help (<) and manual (>): $(cat difference)"
    from_man kvfold.1 | while read -r line; do
        grep -qxF -e "$line" help.txt || fail "$command has no $line"
    done
done
run 2 --man nothing
err_is 'kvfold: --man: command "nothing" is not known; try kvfold --help'

# groups of commands in the same order, and every topic
"$KVFOLD" --help | sed -n -e 's/^  \([a-z][a-z-]*\) .*/\1/p' -e 's/^commands to \(.*\):$/\1:/p' | sed '/^help$/,$d' >groups.txt
sed -n '/^\.Sh COMMANDS$/,/^\.Sh OPTIONS$/p' kvfold.1 | sed -n -e 's/^\.Ss \(.*\)$/\1:/p' -e 's/^\.It Xr kvfold-\([a-z-]*\) 1$/\1/p' >man_groups.txt
diff groups.txt man_groups.txt >difference || fail "groups of --help (<) and manual (>): $(cat difference)"
for topic in glossary files methods tasks metrics formats logs numbers clusters sweeps experiments scaling usage environment; do
    has kvfold.1 "^\.Ss $topic\$"
done
