#!/bin/sh
# Serves a prefix on a base, asks it once in the manner of OpenAI's API, and ends the server.
#   serve_and_curl.sh BASE PREFIX.h5 PROMPT
set -eu
kvfold=${KVFOLD:-kvfold}
said=$(mktemp)
"$kvfold" serve --base "$1" --prefix mine="$2" --port 0 >"$said" & # port 0: a free one, which it prints
server=$!
trap 'kill $server 2>/dev/null || true; rm -f "$said"' EXIT
tries=0
until grep -q '^listening on ' "$said"; do
  kill -0 $server # it may have refused
  tries=$((tries + 1))
  [ $tries -lt 300 ] || exit 1
  sleep 0.1
done
address=$(sed -n 's/^listening on //p' "$said")
curl -sS --noproxy '*' "$address/v1/models"
echo
curl -sS --noproxy '*' "$address/v1/completions" -H 'Content-Type: application/json' \
  -d "{\"model\": \"mine\", \"prompt\": \"$3\", \"max_tokens\": 16, \"temperature\": 0}"
echo
