# The server from the command line: it prints its address, answers as generate does, and ends on a
# signal. Also tests invalid options.
make_inputs
train 0 --steps 2 --out run.h5 --quiet
run 0 merge run.h5 --out prefix.h5

run 2 serve
err_is 'kvfold: serve: --base PATH is needed; try kvfold serve --help'
for bad in =prefix.h5 mine= ''; do
    run 2 serve --base model --prefix "$bad"
    err_is "kvfold: serve: --prefix \"$bad\": want FILE or NAME=FILE; try kvfold serve --help"
done
run 2 serve --base model --port many
has err '^kvfold: serve: --port "many": want '
run 1 serve --base no-such-file
err_is 'kvfold: serve: no-such-file: cannot open: No such file or directory'
out_is

. "$SOURCE/tests/cli/server.sh"

mkdir folder
cp prefix.h5 folder/mine.h5
serve_on --prefix folder/mine.h5 --max-tokens 20 --access-log -
if [ "$port" = 0 ]; then
    wait "$pid"
    grep -q 'built without libmicrohttpd' err || fail "no server: $(cat err)"
    skip 'the server: built without libmicrohttpd'
else
    if post /v1/completions '{"model": "mine", "prompt": "after 5:", "max_tokens": 8, "temperature": 0}'; then
        head -1 answer | grep -q '^HTTP/1\.1 200 ' || fail "$(cat answer)"
        said=$(sed -n 's/.*"text": *\("\([^"\\]\|\\.\)*"\).*/\1/p' answer)
        post /v1/completions '{"model": "mine", "prompt": "after 5:", "max_tokens": 20, "temperature": 1.5, "seed": 4, "min_p": 0.01,
            "repetition_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": -0.3, "logit_bias": {"20": 3, "21": -100}}'
        penalized=$(sed -n 's/.*"text": *\("\([^"\\]\|\\.\)*"\).*/\1/p' answer)
        post /v1/completions '{"model": "none", "prompt": "a"}'
        head -1 answer | grep -q '^HTTP/1\.1 404 ' || fail "$(cat answer)"
        grep -q '"error"' answer || fail "$(cat answer)"
        end TERM 143
        has out '"path":"/v1/completions","status":200,.*"model":"mine","prompt_tokens":[0-9]*,"new_tokens":[0-9]*}$'
        has out '"path":"/v1/completions","status":404,'
        has err '^kvfold: serve: stopped; requests answered: [12], tokens written: [0-9]*$'
        run 0 generate --base model --prefix prefix.h5 --prompt 'after 5:' --max-tokens 8 --threads 2 \
            --precision f32 --json
        want=$(sed -n 's/.*"text": *\("\([^"\\]\|\\.\)*"\).*/\1/p' out)
        [ -n "$want" ] && [ "$said" = "$want" ] || fail "the server says $said, generate $want"
        run 0 generate --base model --prefix prefix.h5 --prompt 'after 5:' --max-tokens 20 --threads 2 --precision f32 --json \
            --temperature 1.5 --seed 4 --min-p 0.01 --repetition-penalty 1.5 --presence-penalty 0.5 --frequency-penalty=-0.3 \
            --logit-bias 20=3 --logit-bias 21=-100
        want=$(sed -n 's/.*"text": *\("\([^"\\]\|\\.\)*"\).*/\1/p' out)
        [ -n "$want" ] && [ "$penalized" = "$want" ] || fail "with penalties the server says $penalized, generate $want"
    else
        skip 'requests: neither curl nor bash to ask with'
        end TERM 143
    fi

    # its warnings also suit a log: a public address, a file that cannot be read again
    cp prefix.h5 other.h5
    serve_on --prefix other=other.h5 --allow-host proxy.example
    echo 'no prefix' >new
    mv new other.h5
    tries=0
    until grep -q 'keeps its previous content' err || [ $tries -ge 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    end TERM 143
    has err '^kvfold: serve: warning: other\.h5: .*; other keeps its previous content$'
    serve_on --host 0.0.0.0 --prefix mine=prefix.h5
    end TERM 143
    has err '^kvfold: serve: warning: 0\.0\.0\.0 is reachable from other machines and requires no key: .*$'
    serve_on --host 0.0.0.0 --prefix mine=prefix.h5 --quiet
    end TERM 143
    err_is

    # a folder: names at the start, refused ones in a warning
    mkdir -p tenants/a
    cp prefix.h5 tenants/a/mine.h5
    cp prefix.h5 "tenants/$(printf 'tab\there').h5"
    ln -s "$PWD/prefix.h5" tenants/out.h5
    serve_on --prefix-dir tenants --prefix-memory 64K
    if post /v1/completions '{"model": "a/mine", "prompt": "after 5:", "max_tokens": 8, "temperature": 0}'; then
        again=$(sed -n 's/.*"text": *\("\([^"\\]\|\\.\)*"\).*/\1/p' answer)
        [ "$again" = "$said" ] || fail "from a folder the server says $again, want $said"
    fi
    end TERM 143
    has err '^kvfold: serve: warning: 2 files of --prefix-dir are not served (.*"tab?here".*): '
    has err '"out\.h5"'
    run 2 serve --base model --prefix-dir tenants --prefix-memory lots
    err_is 'kvfold: serve: --prefix-memory "lots": want a size such as 500M or 2G; try kvfold serve --help'
    run 2 serve --base model --cache-memory much
    err_is 'kvfold: serve: --cache-memory "much": want a size such as 500M or 2G; try kvfold serve --help'
    run 1 serve --base model --prefix-dir prefix.h5
    err_is 'kvfold: serve: prefix.h5: want a folder that can be read'

    # with --quiet, interruption prints nothing; a port in use is refused
    serve_on --quiet
    run 1 serve --base model --port "$port"
    has err "^kvfold: serve: .*$port"
    : >err
    end INT 130
    err_is
fi
