# The first node runs Ray's head and the sweep's controller; Ray uses every node for trials.
controller= steps=() requeue= ending= interrupted= patience=8

end_ray() {
    [ ${#steps[@]} -eq 0 ] || kill "${steps[@]}" 2> /dev/null
    wait
}

# Slurm sends USR1 before the time limit: save the trials, and go on in a new run of this job.
on_usr1() {
    interrupted=1
    requeue=1
    [ -z "$controller" ] || kill -TERM "$controller" 2> /dev/null
}
trap on_usr1 USR1

# Slurm sends TERM to every process of the job half a minute before it kills them. The controller
# waits for trials to be saved, which no longer answer if Ray has ended: a second signal ends that.
on_term() {
    interrupted=1
    ending=1
    [ -z "$controller" ] || { sleep "$patience"; kill -TERM "$controller" 2> /dev/null; } &
}
trap on_term TERM
trap end_ray EXIT

# Other users of these nodes must not be able to use this Ray.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0
export RAY_raylet_start_wait_time_s=120  # Python may be on a slow disk that nodes share
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))') || exit 1
export RAY_AUTH_TOKEN
unset RAY_ADDRESS

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
address=$(python -m automl.workflows.slurm address) || exit 1
echo "run $((${SLURM_RESTART_COUNT:-0} + 1)) of job $SLURM_JOB_ID: Ray at $address, nodes ${nodes[*]}"

# Run Ray on the node of the first argument until the job ends. No other user can enter its folder.
RAY_TMPDIR=$(mktemp -d -u /tmp/ray-XXXXXXXX)
export RAY_TMPDIR
start_ray() {
    srun --nodes=1 --ntasks=1 --nodelist="$1" --overlap --cpu-bind=none --export=ALL \
        "${step_options[@]}" bash -c '
            mkdir -p -m 700 "$RAY_TMPDIR" && [ -O "$RAY_TMPDIR" ] || exit 1
            trap : TERM
            ray start --block --num-cpus="$SLURM_CPUS_ON_NODE" \
                --num-gpus="${SLURM_GPUS_ON_NODE:-0}" "$@" > /dev/null
            rm -rf "$RAY_TMPDIR"
        ' ray "${@:2}" &
    steps+=($!)
}

start_ray "${nodes[0]}" --head --node-ip-address="${address%:*}" --port="${address##*:}" \
    --include-dashboard=false
python -m automl.workflows.slurm wait "$address" --nodes 1 --seconds "$start_seconds" || exit 1
for node in "${nodes[@]:1}"; do
    start_ray "$node" --address="$address"
done
python -m automl.workflows.slurm wait "$address" --nodes "${#nodes[@]}" --seconds "$start_seconds" ||
    exit 1

if [ -z "$requeue$ending" ]; then
    automl "${sweep[@]}" --ray-address="$address" "${program[@]}" &
    controller=$!
fi
status=130
while
    interrupted=
    [ -z "$controller" ] || { wait "$controller"; status=$?; }
    [ -n "$interrupted" ]
do :; done

# 130: interrupted, and it can be resumed; 143: the signal came before the sweep had begun.
if [ -n "$requeue" ] && { [ "$status" -eq 130 ] || [ "$status" -eq 143 ]; }; then
    if [ "${SLURM_RESTART_COUNT:-0}" -lt "$most_requeues" ]; then
        echo "the time limit is near: job $SLURM_JOB_ID is requeued"
        end_ray
        scontrol requeue "$SLURM_JOB_ID"
    else
        echo "the job was requeued $most_requeues times; submit it again to go on" >&2
    fi
fi
exit "$status"
