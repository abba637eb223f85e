#!/usr/bin/env bash
# Trains a small GPT for a time and checks that memory and speed stay steady.
#
#   tests/faults/soak.sh MINUTES [BIN]
#
# BIN is the folder of the programs, by default build/release/bin. The script ignores the first fifth
# of the time. It fails if the memory of the second half exceeds that of the first by more than 2 %
# and 4 MB, or if the median speed of the second half is more than 20 % below that of the first.
set -euo pipefail
minutes=${1:?usage: tests/faults/soak.sh MINUTES [BIN]}
bin=${2:-$(dirname "${BASH_SOURCE[0]}")/../../build/release/bin}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -c '
import random
random.seed(1)
for _ in range(2000):
    print(" ".join(random.choice(["to", "be", "or", "not", "is", "question"]) for _ in range(8)))
' >"$folder/text.txt"

# Checkpoints and evaluations are part of the work.
"$bin/train_gpt" --data "$folder/text.txt" --output "$folder/run" --steps 100000000 \
  --eval-every 200 --n-layer 2 --n-embd 64 --dropout 0.1 2>"$folder/err" >"$folder/out" &
trainer=$!
end=$((SECONDS + minutes * 60))
while [ "$SECONDS" -lt "$end" ] && kill -0 "$trainer" 2>/dev/null; do
  awk '/^VmRSS:/ {print $2}' "/proc/$trainer/status" >>"$folder/rss" || true
  sleep 1
done
kill -TERM "$trainer" 2>/dev/null || true
wait "$trainer" || { cat "$folder/err" >&2; echo "train_gpt failed" >&2; exit 1; }

python3 - "$folder" <<'PYTHON'
import json, statistics, sys

folder = sys.argv[1]


def halves(values):
    steady = values[len(values) // 5:]
    middle = len(steady) // 2
    return statistics.median(steady[:middle]), statistics.median(steady[middle:])


with open(f"{folder}/rss") as file:
    rss = halves([int(line) for line in file])
with open(f"{folder}/run/metrics.jsonl") as file:
    speeds = [json.loads(line)["tokens_per_s"] for line in file]
speed = halves(speeds)
print(f"{len(speeds)} steps")
print(f"memory    {rss[0]:.0f} kB in the first half, {rss[1]:.0f} kB in the second")
print(f"speed     {speed[0]:.0f} tokens/s in the first half, {speed[1]:.0f} in the second")
grown = rss[1] > rss[0] * 1.02 and rss[1] > rss[0] + 4096
slower = speed[1] < 0.8 * speed[0]
sys.exit("memory grew" if grown else "training became slower" if slower else 0)
PYTHON
