cat <(echo a) <(echo b)
coproc cat
echo x >&${COPROC[1]}
read y <&${COPROC[0]}
echo $y $((2**40))
printf '%q\n' 'a b'
[[ abc =~ b(.) ]] && echo ${BASH_REMATCH[1]}
sleep 5 & pid=$!; kill $pid
wait $pid
echo $?
declare -A map=([one]=1 [two]=2)
for key in $(printf '%s\n' "${!map[@]}" | sort); do echo $key=${map[$key]}; done
mapfile -t lines < words.txt
echo ${#lines[@]} ${lines[7]}
