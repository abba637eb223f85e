#!/usr/bin/env bash
# Trains on a file system that becomes full, at every size from empty to sufficient. Each time the
# disk then grows, the run resumes, and its weights must equal those of an uninterrupted run.
#
#   unshare --map-root-user --mount tests/faults/full_disk.sh [BIN]
#
# BIN is the folder of the programs, by default build/release/bin.
set -euo pipefail
bin=$(realpath "${1:-$(dirname "${BASH_SOURCE[0]}")/../../build/release/bin}")

folder=$(mktemp -d)
trap 'umount "$folder/disk" 2>/dev/null; rm -rf "$folder"' EXIT
mkdir "$folder/disk"
for _ in {1..300}; do echo "to be or not to be"; done >"$folder/text.txt"

new=("$bin/train_gpt" --data "$folder/text.txt" --steps 2 --eval-every 1 --dropout 0.2 --threads 1
  --n-layer 1 --n-head 1 --n-embd 4 --block-size 4 --batch-size 4)
"${new[@]}" --output "$folder/whole" >/dev/null 2>&1

full=0
for ((kilobytes = 4; ; kilobytes += 4)); do
  mount -t tmpfs -o "size=${kilobytes}k" none "$folder/disk"
  status=0
  "${new[@]}" --output "$folder/disk/run" >/dev/null 2>"$folder/err" || status=$?
  if [ "$status" -eq 1 ]; then
    full=$((full + 1))
    if [ "$(grep -c '^train_gpt: .*No space left on device$' "$folder/err")" -ne 1 ]; then
      cat "$folder/err" >&2
      echo "expected one line that names the full disk, with $kilobytes kB" >&2
      exit 1
    fi
    mount -o remount,size=10m "$folder/disk"
    if [ -e "$folder/disk/run" ]; then
      "$bin/train_gpt" --resume "$folder/disk/run" >/dev/null 2>&1
    else
      "${new[@]}" --output "$folder/disk/run" >/dev/null 2>&1
    fi
  elif [ "$status" -ne 0 ]; then
    cat "$folder/err" >&2
    echo "expected exit status 0 or 1, got $status, with $kilobytes kB" >&2
    exit 1
  fi
  for file in {last,best}/{model,optimizer,generators}.safetensors; do
    cmp "$folder/whole/$file" "$folder/disk/run/$file"
  done
  umount "$folder/disk"
  [ "$status" -eq 0 ] && break
done
echo "$full sizes of a full disk"
[ "$full" -gt 10 ]
