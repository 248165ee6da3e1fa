# what outlives the recording runs on in silence, whatever becomes of our environment
"$SPARRING" record -q -- sh -c '
	setsid sh -c "
		while [ ! -e go ]; do sleep 0.05; done
		exec >late 2>&1
		cat file; (cat file); env -u SPARRING_CHANNEL cat file
		SPARRING_CHANNEL=garbage cat file
		SPARRING_CHANNEL=ring:/no/such/place/x.ring cat file
		env -u SPARRING_PRELOAD cat file
		SPARRING_SPY=nonsense,no-argv cat file
		cut=\$SPARRING_CHANNEL
		while [ -n \"\$cut\" ]; do cut=\${cut%?}; SPARRING_CHANNEL=\$cut cat file; done | sort | uniq -c | wc -l
		env -i cat file
		: >ended" &'
echo "still here" >file
: >go
for _ in $(seq 400); do [ -e ended ] && break; sleep 0.05; done
cat late
