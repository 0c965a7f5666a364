# --log and --tensorboard: the events for scripts.
make_inputs

# lines EVENT: its number of lines in the log.
lines() {
    grep -c "^{\"event\":\"$1\",\"step\":[0-9]*,\"seconds\":[0-9.e-]*[,}]" log.jsonl
}

train 0 --out run.h5 --valid valid.jsonl --steps 4 --eval-every 2 --schedule-steps 6 --log log.jsonl --tensorboard board
[ "$(lines start)/$(lines step)/$(lines eval)/$(lines end)" = 1/4/2/1 ] || fail "log: $(cat log.jsonl)"
has log.jsonl '^{"event":"start",.*"steps":4,.*"options":{'
has log.jsonl '^{"event":"step","step":4,.*"train_loss":.*"lr":.*"grad_norm":.*"prefix_norm":.*"tokens":.*"tokens_per_second":'
has log.jsonl '^{"event":"eval","step":4,.*"valid_loss":.*"metric":"loss","value":.*"best":'
has log.jsonl '^{"event":"note","step":0,.*"text":"encoder fits the initial prefix of --init match'
has log.jsonl '^{"event":"end","step":4,.*"how":"finished"}$'
ls board >names
has names '^events\.out\.tfevents\.[0-9]\{10\}\.'

# another run is refused, a resumed one appends
train 1 --out other.h5 --steps 2 --log log.jsonl
err_is 'kvfold: train: log.jsonl: exists (--force replaces it, --resume adds to it)'
absent other.h5
printf '{"event":"st' >>log.jsonl
train 0 --out run.h5 --valid valid.jsonl --steps 6 --resume --log log.jsonl --tensorboard board
[ "$(lines start)/$(lines step)/$(lines end)" = 2/6/2 ] || fail "resumed: $(cat log.jsonl)"
grep -v '^{"event":"[a-z]*",.*}$' log.jsonl >torn && fail "torn: $(cat torn)"
[ "$(ls board | wc -l)" -eq 2 ] || fail "event files: $(ls board)"

# options that do not affect the result are not in the file
train 0 --out plain.h5 --valid valid.jsonl --steps 4 --eval-every 2 --schedule-steps 6
train 0 --out plain.h5 --valid valid.jsonl --steps 6 --resume
same run.h5 plain.h5

# an unusual learning rate gives a note, the default and rates in other units do not
for how in '--lr 3' '--lr 0.3' '--lr 3 --lr-units parameter'; do
    # shellcheck disable=SC2086 # words
    train 0 --out rate.h5 --force --steps 1 $how
    case $how in
    '--lr 3') has out '^--lr 3 is 100 times the default of method mlp, 0.03: the loss may diverge$' ;;
    *) grep -q 'the loss may diverge' out && fail "$how: $(cat out)" ;;
    esac
done
