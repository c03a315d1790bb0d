# Steps that say what they do, the how-manieth of how many they are, and how long all of them will still take.
# Sourced by lib.sh. shellcheck shell=bash

TOLD_EVERY_S=${TOLD_EVERY_S:-30} # between two lines where there is no terminal

# expected NAME: the seconds that a step takes on a quiet machine with two cores and an empty cache.
expected() {
    case $1 in
        "install Docker") echo 30 ;;
        "build kind "*) echo 25 ;;
        "build helm "*) echo 107 ;;
        "make debian:"*) echo 38 ;;
        "resolve "*) echo 13 ;;
        "build kubelet "*) echo 230 ;;
        "build kubeadm "* | "build kubectl "*) echo 25 ;;
        "build kube-apiserver "*) echo 81 ;;
        "build kube-controller-manager "*) echo 48 ;;
        "build kube-scheduler "* | "build kube-proxy "*) echo 12 ;;
        "build etcd "*) echo 39 ;;
        "build coredns "* | "build local-path-provisioner "*) echo 280 ;;
        "build pause "* | "guard "* | "storage ready" | "nodes ready") echo 1 ;;
        "node base image" | "component images" | "node image "*) echo 30 ;;
        "create cluster") echo 40 ;;
        "system pods ready") echo 30 ;;
        "build gantry-pipeline:"*) echo 240 ;;
        "build gantry:"*) echo 90 ;;
        "build gantry-test/"*) echo 60 ;;
        "load "*) echo 30 ;;
        *) echo 5 ;;
    esac
}

# plan NAME...: the steps that are ahead, for this script and all that it calls. GANTRY_STEPS names the file with a
# line for each: ahead or done, and its seconds, expected or taken. A step that nobody planned is added when it comes.
plan() {
    local name
    [[ -z ${GANTRY_STEPS:-} ]] || return 0 # whoever called this script has planned already
    GANTRY_STEPS=$LOG_DIR/steps
    export GANTRY_STEPS
    for name in "$@"; do printf 'ahead\t%d\t%s\n' "$(expected "$name")" "$name"; done >"$GANTRY_STEPS"
}

# begin_steps [IMAGE...]: plans what up.sh has to do, and these images. With Docker up, since it knows what is there.
begin_steps() {
    local reason steps
    [[ -z ${GANTRY_STEPS:-} ]] || return 0
    reason=$("$CLUSTER_DIR/possible.sh") || die "$reason"
    steps=$("$CLUSTER_DIR/ahead.sh" "$@")
    mapfile -t steps <<<"$steps"
    plan "${steps[@]}"
}

# note_done NAME SECONDS: a step has ended.
note_done() {
    [[ -z ${GANTRY_STEPS:-} ]] || printf 'done\t%d\t%s\n' "$2" "$1" >>"$GANTRY_STEPS"
}

# standing NAME ELAPSED: "[5/31] NAME  12 s of about 230 s; about 14 min left". What is left is scaled by how fast or
# slow the steps until now were, since machines differ and are busy. With "short" only up to the seconds.
standing() {
    local steps=${GANTRY_STEPS:-/dev/null}
    awk -F '\t' -v name="$1" -v elapsed="$2" -v short="${3:-}" -v usual="$(expected "$1")" '
        $1 == "ahead" { ahead[$3] = $2 }
        $1 == "done" { ended[$3] = 1; took += $2; should += ($3 in ahead) ? ahead[$3] : $2 }
        END {
            for (step in ended) count++
            total = count
            for (step in ahead) if (!(step in ended)) { total++; if (step != name) left += ahead[step] }
            planned = length(ahead) > 0
            if (!(name in ahead) || (name in ended)) total++
            pace = (should >= 20) ? took / should : 1
            if (pace < 0.2) pace = 0.2
            if (pace > 10) pace = 10
            usual *= pace; left *= pace
            if (planned) printf "[%*d/%d] ", length(total), count + 1, total
            printf "%-46s %4d s", name, elapsed
            if (short) exit
            if (usual >= 10) printf " of about %d s", usual
            left += (usual > elapsed) ? usual - elapsed : 0
            if (planned && left >= 90) printf "; about %d min left", left / 60 + 0.5
            else if (planned && left >= 10) printf "; about %d s left", left
        }' "$steps"
}

# watch_step NAME CALLER: tells where the step stands, on a terminal each second in place, else a line now and then,
# for as long as CALLER lives.
watch_step() {
    local seconds=0
    close_inherited # its sleep outlives it for a moment
    while kill -0 "$2" 2>/dev/null; do
        if [[ -t 2 ]]; then
            printf '\r\033[K  %s' "$(standing "$1" "$seconds")" >&2
        elif ((seconds > 0 && seconds % TOLD_EVERY_S == 0)) || ((seconds == 0 && $(expected "$1") >= TOLD_EVERY_S)); then
            printf '  %s\n' "$(standing "$1" "$seconds")" >&2
        fi
        sleep 1 </dev/null >/dev/null 2>&1
        seconds=$((seconds + 1))
    done
}

# step NAME COMMAND...: runs it quietly, tells how far it is, prints its time; on failure shows the end of its log.
step() {
    local name=$1 log started watcher clear='' failed=''
    shift
    log=$LOG_DIR/$(printf '%s' "$name" | tr -c 'a-zA-Z0-9.-' '_').log
    started=$SECONDS
    [[ ! -t 2 ]] || clear='\r\033[K'
    watch_step "$name" "$BASHPID" &
    watcher=$!
    # In the background, because `set -e` is switched off inside a condition.
    "$@" >"$log" 2>&1 &
    wait $! || failed=1
    kill "$watcher" 2>/dev/null && wait "$watcher" 2>/dev/null || true
    if [[ -z $failed ]]; then
        # shellcheck disable=SC2059 # the variable is an escape sequence
        printf "$clear"'  %s\n' "$(standing "$name" $((SECONDS - started)) short)" >&2
        note_done "$name" $((SECONDS - started))
    else
        # shellcheck disable=SC2059
        printf "$clear"'  %-46s failed after %d s; last lines of %s:\n' "$name" $((SECONDS - started)) "$log" >&2
        tail -n 25 "$log" >&2
        exit 1
    fi
}
