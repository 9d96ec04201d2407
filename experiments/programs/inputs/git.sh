set -e
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000' GIT_CONFIG_GLOBAL=/dev/null
git init -q -b main r && cd r
cp ../words.txt ../series.c . && git add . && git commit -q -m first
echo more >> series.c && git diff --stat && git commit -qam second
git checkout -q -b side HEAD~1 && echo s > s.txt && git add s.txt && git commit -qm side
git checkout -q main && git merge -q side -m merge
git log --format='%H %s' --graph
git gc -q && git fsck --strict && git count-objects -v | grep -v size && git status --short
git blame series.c | cut -c1-8 | sort | uniq -c
git tag v1 && git archive --format=tar v1 | sha256sum
cd .. && rm -rf r
