# The web page in a real browser, by chromedriver (W3C WebDriver, spoken with curl): a question to
# two models, a classifier, the token, a phone. Run by ../cli/run.sh; skipped without Chromium,
# chromedriver or curl. With SCREENSHOTS=FOLDER in the environment each view is saved there.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ] || ! command -v chromedriver >/dev/null || ! command -v curl >/dev/null; then
    echo 'skipped: no Chromium, chromedriver or curl'
    exit 77
fi
# shellcheck source=tests/cli/server.sh
. "$SOURCE/tests/cli/server.sh"
"$MAKE_TINY" model 1 || exit 1
for i in 1 2 3 4; do
    printf '{"prompt": "after %d:", "completion": " one"}\n' $i >>lm.jsonl
    printf '{"text": "good %d", "label": "yes"}\n{"text": "bad %d", "label": "<b>no</b>"}\n' $i $i >>classes.jsonl
done
common='--base model --threads 2 --precision f32 --method direct --prefix-length 4 --steps 4 --quiet'
# shellcheck disable=SC2086 # words
run 0 train $common --data lm.jsonl --valid lm.jsonl --out lm.h5
# shellcheck disable=SC2086
run 0 train $common --task seq-cls --data classes.jsonl --out classes.h5
echo secret >token
serve_on --prefix mine=lm.h5 --prefix mood=classes.h5 --token-file token
if [ "$port" = 0 ]; then
    grep -q 'built without libmicrohttpd' err && exit 77
    fail "no server: $(cat err)"
    exit 1
fi

: >driver.out
chromedriver --port=0 >driver.out 2>&1 &
driver=$!
trap 'kill $driver $pid 2>/dev/null; rm -rf "$folder"' EXIT
tries=0
until grep -q 'started successfully on port' driver.out || [ $tries -ge 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
at=http://127.0.0.1:$(sed -n 's/.*started successfully on port \([0-9]*\).*/\1/p' driver.out)

# wire METHOD PATH BODY: the answer in reply.
wire() {
    curl -s -m 120 --noproxy '*' -X "$1" -H 'Content-Type: application/json' ${3:+-d "$3"} "$at$2" >reply
}

# js CODE: its result, in reply as {"value": ...}
js() {
    wire POST "$session/execute/sync" "{\"args\": [], \"script\": \"$1\"}"
}

# expect WHAT CODE: true within 60 seconds
expect() {
    tries=0
    js "return $2"
    until grep -q '^{"value":true}' reply; do
        tries=$((tries + 1))
        if [ $tries -ge 240 ]; then
            fail "$1: $(cat reply)"
            return
        fi
        sleep 0.25
        js "return $2"
    done
}

keep() {
    [ -n "${SCREENSHOTS:-}" ] || return
    wire GET "$session/screenshot"
    sed 's/^{"value":"//; s/"}$//' reply | base64 -d >"$SCREENSHOTS/$1.png"
}

# type SELECTOR TEXT: as keys
type_into() {
    wire POST "$session/element" "{\"using\": \"css selector\", \"value\": \"$1\"}"
    element=$(sed -n 's/.*"element-[^"]*":"\([^"]*\)".*/\1/p' reply)
    wire POST "$session/element/$element/value" "{\"text\": \"$2\"}"
}

flags='"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-proxy-server", "--user-data-dir='$PWD'/profile"'
wire POST /session "{\"capabilities\": {\"alwaysMatch\": {\"goog:loggingPrefs\": {\"browser\": \"ALL\"},
    \"goog:chromeOptions\": {\"binary\": \"$browser\", \"args\": [$flags]}}}}"
session=/session/$(sed -n 's/.*"sessionId":"\([^"]*\)".*/\1/p' reply)
[ "$session" != /session/ ] || fail "no session: $(cat reply)"

# size WIDTH HEIGHT MODE: of the page, light or dark
size() {
    wire POST "$session/goog/cdp/execute" "{\"cmd\": \"Emulation.setDeviceMetricsOverride\", \"params\":
        {\"width\": $1, \"height\": $2, \"deviceScaleFactor\": 1, \"mobile\": false}}"
    wire POST "$session/goog/cdp/execute" "{\"cmd\": \"Emulation.setEmulatedMedia\", \"params\":
        {\"features\": [{\"name\": \"prefers-color-scheme\", \"value\": \"$3\"}]}}"
}

fits() {
    expect "$1 is wider than its window" 'document.documentElement.scrollWidth <= innerWidth;'
}

size 1280 900 light
wire POST "$session/url" "{\"url\": \"http://127.0.0.1:$port/\"}"
expect 'no question for the token' '!document.getElementById(`token-form`).hidden && document.activeElement.id === `token`;'
keep token
type_into '#token' 'wrong\uE007'
expect 'a wrong token is not refused' 'document.getElementById(`token-note`).textContent === `That token was refused.`;'
type_into '#token' 'secret\uE007'
expect 'the token does not open the page' '!document.getElementById(`work`).hidden;'
expect 'the token is kept for longer than the tab' 'localStorage.length === 0 && document.cookie === ``;'
expect 'not all models' '[...document.getElementById(`left`).options].map((o) => o.value).join() === `mine,model`;'
expect 'no facts' '/method\\s*direct/.test(document.getElementById(`left-facts`).innerText) && /valid loss\\s*[0-9.]+/.test(document.getElementById(`left-facts`).innerText);'
expect 'the bare base is not beside it' 'document.getElementById(`right`).value === `model`;'
expect 'not the form and example of training' 'document.getElementById(`form-text`).checked && document.getElementById(`field-prompt`).value === `after 1:`;'
js 'document.getElementById(`field-prompt`).value = ``; document.getElementById(`length`).value = 8;'
type_into '#field-prompt' 'after 5:\uE007'
expect 'no two answers' '[...document.querySelectorAll(`.answer .said`)].filter((p) => /\\d+ tokens in, \\d+ out/.test(p.textContent)).length === 2;'
keep answers
fits 'the page'
left=$(js 'return document.querySelector(`.answer pre`).textContent;'; sed -n 's/^{"value":\(.*\)}$/\1/p' reply)
run 0 generate --base model --prefix lm.h5 --prompt 'after 5:' --max-tokens 8 --temperature 0 --threads 2 --precision f32 --json
want=$(sed -n 's/.*"text": *\("\([^"\\]\|\\.\)*"\).*/\1/p' out)
[ "$left" = "$want" ] || fail "the page shows $left, generate $want"

js 'document.getElementById(`tab-classify`).click();'
type_into '#field-text' 'good 2\uE007'
expect 'no labels' '[...document.querySelectorAll(`.exchange:first-child .bars th`)].map((e) => e.textContent).sort().join() === `<b>no</b>,yes`;'
expect 'no probabilities' '[...document.querySelectorAll(`.exchange:first-child .bars td`)].every((e) => /^[0-9.]+ %$/.test(e.textContent));'
expect 'a label became markup' 'document.querySelectorAll(`.bars b`).length === 0;'
keep labels

size 390 844 dark
expect 'not dark' 'getComputedStyle(document.body).backgroundColor === `rgb(18, 22, 27)`;'
fits 'the page on a phone'
keep phone-dark
js 'document.getElementById(`tab-write`).click();'
fits 'the page on a phone'
keep phone-write

# the policy holds: no request to other hosts, and no console errors except for the two refused
# tokens
expect 'something was asked elsewhere' 'performance.getEntriesByType(`resource`).every((e) => e.name.startsWith(location.origin));'
wire POST "$session/se/log" '{"type": "browser"}'
complaints=$(grep -o '"level":"[A-Z]*","message":"[^"]*' reply | grep -v '401 (Unauthorized)' || true)
[ -z "$complaints" ] || fail "the browser says: $complaints"
wire DELETE "$session"
end TERM 143
