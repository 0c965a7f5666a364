# The base's file is truncated while a server or a command reads it: one line names the file, and
# the process ends. (A process gets SIGBUS on access to missing pages of a mapped file.)
# shellcheck disable=SC1091 # in this folder
. "$SOURCE/tests/cli/server.sh"
make_inputs
changed='changed while it was read; start again, and replace such a file only by renaming a new one'

cp -r model live
mkfifo rows
"$KVFOLD" generate --base live --data rows --max-tokens 4 --threads 2 --stream-layers on >out 2>err &
pid=$!
exec 9>rows # opens when the command does
: >live/model.safetensors
cat valid.jsonl >&9
exec 9>&-
wait $pid
code=$?
[ $code -eq 1 ] || fail "generate: exit status $code"
grep -q "^kvfold: .*live/model.safetensors: " err || fail "generate: $(cat err)"

rm -r live
cp -r model live
base=live
serve_on --stream-layers on
if [ "$port" = 0 ]; then
    wait "$pid"
    skip 'the server: built without libmicrohttpd'
elif post /v1/completions '{"model": "live", "prompt": "after 5:", "max_tokens": 4, "temperature": 0}'; then
    has answer '^HTTP/1.1 200'
    : >live/model.safetensors
    post /v1/completions '{"model": "live", "prompt": "after 6:", "max_tokens": 4, "temperature": 0}'
    wait "$pid"
    code=$?
    [ $code -eq 1 ] || fail "serve: exit status $code"
    has err "^kvfold: live/model.safetensors: $changed"
else
    end TERM 143
    skip 'requests: neither curl nor bash to ask with'
fi
