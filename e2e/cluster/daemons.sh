# Processes that outlive the script that starts them. Sourced by lib.sh. shellcheck shell=bash

# close_inherited: leaves this subshell nothing but 0, 1 and 2.
close_inherited() {
    local open
    for open in /proc/"$BASHPID"/fd/*; do
        open=${open##*/}
        ((open <= 2)) || eval "exec $open>&-"
    done
}

# detached LOG COMMAND...: starts it in a session of its own; its pid is in DETACHED_PID.
# It gets none of the caller's open files: whoever waits for the end of one of them (a pipe to a log, a lock, make's job
# server) would wait for as long as the process lives.
detached() {
    local log=$1
    shift
    (
        exec </dev/null >"$log" 2>&1
        close_inherited
        exec setsid "$@"
    ) &
    DETACHED_PID=$!
}

# start_docker: the pid is kept, so that down.sh ends what was started here and nothing else.
start_docker() {
    detached "$LOG_DIR/dockerd.log" dockerd
    echo "$DETACHED_PID" >"$DOCKERD_PID"
    for _ in $(seq 60); do
        docker info >/dev/null 2>&1 && return
        sleep 0.5
    done
    tail -n 20 "$LOG_DIR/dockerd.log"
    return 1
}
