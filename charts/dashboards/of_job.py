"""One job."""

from panel import OF_JOB, Dashboard, Panel, Query, Row, Variable

STALE, VERY_STALE = 1800, 3600  # a checkpoint's age; the first is where the alert's clock begins (rules.yaml)
DATA_BOUND = 0.2  # as in rules.yaml


def share(phase):
    """A phase's share of the time of the thread that steps, of each rank."""
    return (
        f'max by (rank) (rate(trainyard_phase_seconds_total{{{OF_JOB},phase="{phase}"}}[$__rate_interval]) '
        f"/ ignoring (phase) sum without (phase) (rate(trainyard_phase_seconds_total{{{OF_JOB}}}[$__rate_interval])))"
    )


def rate_by_rank(metric):
    return f"max by (rank) (rate({metric}{{{OF_JOB}}}[$__rate_interval]))"


def newest(metric):
    """The same of every rank: one line, whichever ranks answer."""
    return f"max(trainyard_{metric}{{{OF_JOB}}})"


BY_RANK = "rank {{rank}}"

PROGRESS = Row("Progress", (
    Panel("Progress", "Steps done, of all that the run has.", (Query(f"{newest('step')} / {newest('total_steps')}"),),
          "percentunit", kind="stat", width=4, high=1, decimals=1),
    Panel("Time left", "At today's speed, with the evaluations in between.", (Query(newest("eta_seconds")),), "dtdurations", kind="stat", width=4),
    Panel("Loss", "Training loss of the last step. No value: before the first step, or it is not finite.", (Query(newest("loss")),), "none", kind="stat", width=4, low=None, decimals=4),
    Panel("Since the last progress", "Of any kind: a step, a batch of an evaluation, a change of phase. The operator ends the attempt when it reaches spec.deadlines.stallSeconds.",
          (Query(f"time() - {newest('last_progress_timestamp_seconds')}"),), "s", kind="stat", width=4, thresholds=(("orange", 120), ("red", 300)), decimals=0),
    Panel("Checkpoint's age", "What a failure now would cost. No value: there is no durable checkpoint yet.",
          (Query(f"min(trainyard_checkpoint_age_seconds{{{OF_JOB}}})"),), "dtdurations", kind="stat", width=4, thresholds=(("orange", STALE), ("red", VERY_STALE))),
    Panel("Restarts", "Attempts before this one, after failures, disruptions and suspensions: status.failures of the job has the causes.", (Query(newest("restarts_total")),),
          "none", kind="stat", width=4, thresholds=(("orange", 3), ("red", 10))),
    Panel("Steps", "A step back is a restart: what came after the last checkpoint is trained again.",
          (Query(newest("step"), "done"), Query(newest("checkpoint_last_step"), "in a durable checkpoint")), "none"),
    Panel("Loss", "Over all ranks, of each step that was scraped. A gap is a step that was not finite.", (Query(f"max by (attempt) (trainyard_loss{{{OF_JOB}}})", "attempt {{attempt}}"),),
          "none", low=None),
    Panel("Throughput", "Samples of all ranks in a second, without evaluations.", (Query(newest("samples_per_second"), "samples"),), "cps"),
    Panel("Gradient norm", "Over all ranks, before clipping. A jump that stays comes before a loss that is not finite.", (Query(newest("grad_norm"), "norm"),), "none", log=True),
    Panel("Learning rate", "Of the last step, as its schedule says.", (Query(newest("learning_rate"), "learning rate"),), "none"),
    Panel("Steps that were not finite", "Loss or gradient; left out with faults.nonfinite: skip. Their samples are in run.dir/nonfinite-step-N.json.",
          (Query(newest("nonfinite_steps_total"), "in this attempt"),), "none", thresholds=(("red", 1),)),
))

TIME = Row("Where a step's time goes", (
    Panel("Step anatomy", "Share of the time of the thread that steps, mean of all ranks. Communication contains the waiting for the slowest rank.",
          (Query(f"avg by (phase) (rate(trainyard_phase_seconds_total{{{OF_JOB}}}[$__rate_interval]))", "{{phase}}"),), "percentunit", width=12, stacked=True),
    Panel("Waiting for data", "Of each rank. Above the line processors or GPUs stand still: look at what the loader does.", (Query(share("data"), BY_RANK),),
          "percentunit", width=12, thresholds=(("red", DATA_BOUND),)),
    Panel("Loader", "Seconds in a second, of all loader threads of a rank together. Much reading: the volume is slow. Much collating: more data.workers, or more CPUs.",
          (Query(f"max(rate(trainyard_data_read_seconds_total{{{OF_JOB}}}[$__rate_interval]))", "reading"),
           Query(f"max(rate(trainyard_data_collate_seconds_total{{{OF_JOB}}}[$__rate_interval]))", "collating"),
           Query(f"max(rate(trainyard_data_wait_seconds_total{{{OF_JOB}}}[$__rate_interval]))", "the step waits")), "s"),
    Panel("Tokens", "Tokens of all ranks in a second, where the task says how many a sample has.", (Query(newest("tokens_per_second"), "tokens"),), "cps"),
    Panel("Model's use of the hardware", "Share of what all ranks can compute at most (MFU). Only where the configuration has metrics.peak_tflops.", (Query(newest("mfu"), "MFU"),), "percentunit"),
))

RANKS = Row("Ranks", (
    Panel("Computing", "Forward and backward, as a share of each rank's time. The rank with the most is the slowest: the others wait for it.",
          (Query(f'max by (rank) (sum without (phase) (rate(trainyard_phase_seconds_total{{{OF_JOB},phase=~"forward|backward"}}[$__rate_interval])))', BY_RANK),), "percentunit"),
    Panel("Communication", "Of each rank, with its waiting for others. The rank with the least is the one that is waited for.", (Query(share("communication"), BY_RANK),), "percentunit"),
    Panel("Spread", "By how much of a second per second the slowest rank computes more than the fastest. Near zero: the ranks are even.",
          (Query("{0} - {1}".format(*(f'{end}(sum by (rank) (rate(trainyard_phase_seconds_total{{{OF_JOB},phase=~"forward|backward"}}[$__rate_interval])))' for end in ("max", "min"))), "slowest - fastest"),),
          "percentunit"),
    Panel("Memory", "Resident memory of each rank's process on its node. What only grows ends with OOMKilled.", (Query(f"max by (rank) (trainyard_host_memory_bytes{{{OF_JOB}}})", BY_RANK),), "bytes"),
    Panel("Ranks that answer", "Less than the world's size: a worker is gone or cannot be scraped.",
          (Query(f"count(count by (rank) (trainyard_world_size{{{OF_JOB}}}))", "answer"), Query(newest("world_size"), "world size")), "none"),
    Panel("Lost telemetry", "Events that a sink was too slow for. Training goes on; the log or TensorBoard has gaps.",
          (Query(f"sum by (sink) (increase(trainyard_telemetry_dropped_total{{{OF_JOB}}}[$__rate_interval]))", "{{sink}}"),), "none"),
))

CHECKPOINTS = Row("Checkpoints", (
    Panel("Age of the newest", "Durable ones alone.", (Query(f"min(trainyard_checkpoint_age_seconds{{{OF_JOB}}})", "age"),), "s", thresholds=(("orange", STALE), ("red", VERY_STALE))),
    Panel("How long one takes", "In the background, beside training.", (Query(newest("checkpoint_duration_seconds"), "the newest"),), "s"),
    Panel("Waiting for checkpoints", "Share of its time that training stands still for them. Much: the volume is slower than checkpoints come.",
          (Query(rate_by_rank("trainyard_checkpoint_stall_seconds_total"), BY_RANK),), "percentunit"),
))

DASHBOARD = Dashboard(
    "trainyard-job", "Trainyard / Job", "One training job: progress, loss, where its time goes, ranks, checkpoints.",
    (Variable("namespace", "Namespace", "label_values(trainyard_world_size, namespace)"), Variable("job", "Job", 'label_values(trainyard_world_size{namespace="$namespace"}, trainyard_job)')),
    (PROGRESS, TIME, RANKS, CHECKPOINTS))
