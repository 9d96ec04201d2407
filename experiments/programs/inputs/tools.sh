set -e
sort -n words.txt | head -3 | awk '{print $1+1, $2}' | sed 's/word/W/'
mkdir -p d/e && echo x > d/e/f && echo hello > d/g
find d -type f | sort
tar cf x.tar $(find d -type f | sort) words.txt && gzip -n -k x.tar && gunzip -c x.tar.gz | tar tf -
for i in 1 2 3; do echo $i; done | while read x; do echo "got $x"; done
x=$(wc -l < words.txt); echo $x
cat <<EOF
here $x
EOF
trap 'echo bye' EXIT
(exit 3) || echo "status $?"
mkdir -p q/r && touch q/r/s && rm -r q && ls d
cp -p words.txt c.txt && mv c.txt z.txt && cmp words.txt z.txt && ln -s z.txt l && readlink l && head -1 l
chmod 640 z.txt; ln z.txt h; stat -c '%h %s %a' z.txt; chmod 600 h; stat -c %a z.txt
mkfifo p; (echo through > p) & cat p; wait; rm p
sleep 0.1 & wait
echo done | tee t.out
touch -d '2020-01-02 03:04:05' t.out; find . -newer t.out -name 'z*' | sort; stat -c %Y t.out
rm -rf x.tar x.tar.gz
