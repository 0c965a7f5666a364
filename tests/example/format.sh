# The file format of docs/contributing.md: rows like those of other formats.
make_inputs
printf 'text: a good film\nlabel: yes\n\n\ntext: a bad film\nlabel: no\n' >mood.blocks
printf 'text\tlabel\na good film\tyes\na bad film\tno\n' >mood.tsv
for data in mood.blocks mood.tsv; do
    run 0 train --base model --data $data --task seq-cls --method direct --prefix-length 4 --steps 2 --out $data.h5 --threads 2 --quiet
done
run 0 diff --tensors-only mood.blocks.h5 mood.tsv.h5
cp mood.blocks mood.txt
run 0 train --base model --data mood.txt --format blocks --task seq-cls --steps 1 --out named.h5 --threads 2 --quiet
printf 'text: good\nlabel yes\n' >bad.blocks
run 1 train --base model --data bad.blocks --task seq-cls --out no.h5
has err 'bad.blocks:2: want "name: value"'
