# Functions for scripts that need a running server; scripts source this file, like run.sh.
# shellcheck disable=SC2034,SC2154 # names of run.sh and for the scripts

# serve_on ARGUMENTS...: starts a server in the background, with its id in $pid and its port in
# $port; 0: it ended by itself. (A shell's `&` lets its commands ignore SIGINT; `env` resets that.)
serve_on() {
    : >out # removes earlier output
    env --default-signal=INT "$KVFOLD" serve --base "${base:-model}" --port 0 --threads 2 --precision f32 "$@" >out 2>err &
    pid=$!
    port=0
    tries=0
    until grep -q '^listening on ' out || ! kill -0 $pid 2>/dev/null; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 200 ] || { fail 'does not listen after 20 s'; kill -s KILL $pid; break; }
    done
    port=$(sed -n 's|^listening on http://[0-9.]*:\([0-9]*\)$|\1|p' out)
    port=${port:-0}
}

# end SIGNAL CODE
end() {
    kill -s "$1" "$pid"
    wait "$pid"
    code=$?
    [ $code -eq "$2" ] || fail "SIG$1: exit status $code, want $2"
}

# post PATH BODY: the whole answer with its header, into answer; 1: no HTTP client is available.
post() {
    if command -v curl >/dev/null; then
        curl -s -i -m 60 --noproxy '*' -H 'Content-Type: application/json' -d "$2" "http://127.0.0.1:$port$1" >answer
    elif command -v bash >/dev/null; then
        # shellcheck disable=SC2016 # its own variables
        bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1" &&
            printf "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" \
                "$2" ${#3} "$3" >&3 && cat <&3' post "$port" "$1" "$2" >answer
    else
        return 1
    fi
}
