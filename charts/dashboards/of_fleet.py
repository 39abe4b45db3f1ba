"""All jobs."""

from panel import OF_OPERATOR, Dashboard, Panel, Query, Row, Variable, events

# Every replica has all jobs in its caches: one of each release's counts.
JOBS = f"sum by (phase) (max by (namespace, trainyard_release, phase) (trainyard_jobs{{{OF_OPERATOR}}}))"
SECONDS = f"trainyard_job_seconds_total{{{OF_OPERATOR}}}"
JOB = "/d/trainyard-job?var-namespace=${__field.labels.namespace}&var-job=${__field.labels.trainyard_job}"


def jobs(title, description, phases, *thresholds):
    # None of them is 0 only where an operator says what there is.
    query = f'sum(max by (namespace, trainyard_release, phase) (trainyard_jobs{{{OF_OPERATOR},phase=~"{phases}"}})) or 0 * sum(trainyard_leader{{{OF_OPERATOR}}})'
    return Panel(title, description, (Query(query),), "none", kind="stat", width=4, thresholds=thresholds)


def share_of(cause, window):
    return f'sum(increase(trainyard_job_seconds_total{{{OF_OPERATOR},cause="{cause}"}}[{window}])) / sum(increase({SECONDS}[{window}]))'


def of_startup(q):
    return f"histogram_quantile({q}, sum by (stage, le) (increase(trainyard_job_startup_seconds_bucket{{{OF_OPERATOR}}}[$__range])))"


NOW = Row("Jobs", (
    jobs("Running", "All of their workers run.", "Running"),
    jobs("Waiting", "New, without workers, or with workers that are not all ready: queues, quotas, images.", "New|Pending|Starting"),
    jobs("Restarting", "Between two attempts.", "Restarting", ("orange", 1)),
    jobs("Failed", "That are still there; spec.ttlSecondsAfterFinished takes them away.", "Failed", ("orange", 1)),
    jobs("Invalid", "Their spec is refused: condition InvalidSpec says why.", "Invalid", ("orange", 1)),
    Panel("Goodput", "Share of all jobs' time, in the range that is shown, which went to steps that no attempt had done before.", (Query(share_of("training", "$__range"), instant=True),),
          "percentunit", kind="stat", width=4, high=1, decimals=1),
    Panel("Jobs by phase", "TrainingJobs that exist.", (Query(JOBS, "{{phase}}"),), "none", width=12, stacked=True),
    Panel("How far the running ones are", "Jobs whose workers are scraped; the link leads to a job's own dashboard.",
          (Query("max by (namespace, trainyard_job) (trainyard_step) / max by (namespace, trainyard_job) (trainyard_total_steps)", "{{namespace}}/{{trainyard_job}}", instant=True),),
          "percentunit", kind="bargauge", width=12, high=1, link=JOB),
))

FAILURES = Row("Restarts and failures", (
    Panel("Restarts by reason", "Of what the operator blames. A reason that several jobs share: look for a node, a volume or an image that they share.",
          (Query(events("trainyard_job_restarts_total", "reason", OF_OPERATOR), "{{reason}}"),), "none", stacked=True, bars=True),
    Panel("Restarts that got no further", "Charged: no newer checkpoint since the last one. Free: disruptions, and restarts behind progress.",
          (Query(events("trainyard_job_restarts_total", "charged", OF_OPERATOR), "charged: {{charged}}"),), "none", stacked=True, bars=True),
    Panel("Jobs that failed, by reason", "For good: a reason that no restart mends, or too many restarts.",
          (Query(events("trainyard_job_failures_total", "reason", OF_OPERATOR), "{{reason}}"),), "none", stacked=True, bars=True),
))

STARTS = Row("Starts", (
    Panel("Nine of ten attempts are faster", "Each stage behind the one before, in the range that is shown; docs/goodput.md says what to look at for each.", (Query(of_startup(0.9), "{{stage}}", instant=True),),
          "s", kind="bargauge"),
    Panel("Half of the attempts are faster", "The same stages.", (Query(of_startup(0.5), "{{stage}}", instant=True),), "s", kind="bargauge"),
    Panel("Mean of each stage", "In the hour before. All together: from an attempt's beginning to the end of its first step.",
          (Query(f"sum by (stage) (increase(trainyard_job_startup_seconds_sum{{{OF_OPERATOR}}}[1h])) / sum by (stage) (increase(trainyard_job_startup_seconds_count{{{OF_OPERATOR}}}[1h]))", "{{stage}}"),),
          "s", stacked=True),
))

GOODPUT = Row("Goodput", (
    Panel("Where the jobs' time goes", "In jobs: 3 is three jobs that do nothing else. Counted when a status is written, so a stretch of training appears at its end.",
          (Query(f"sum by (cause) (rate({SECONDS}[5m]))", "{{cause}}"),), "none", width=12, stacked=True),
    Panel("Share of each cause", "In the range that is shown. Much replay: smaller checkpoint intervals. Much stall: a smaller stallSeconds. Much startup: the row above. Much queue: more nodes.",
          (Query(f"sum by (cause) (increase({SECONDS}[$__range])) / scalar(sum(increase({SECONDS}[$__range])))", "{{cause}}", instant=True),),
          "percentunit", kind="bargauge", width=12, high=1),
))

WORKERS = Row("Jobs to look at", (
    Panel("Oldest checkpoints", "What a failure now would cost: the ten worst.", (Query("topk(10, min by (namespace, trainyard_job) (trainyard_checkpoint_age_seconds))", "{{namespace}}/{{trainyard_job}}", instant=True),),
          "s", kind="bargauge", thresholds=(("orange", 1800), ("red", 3600)), link=JOB),
    Panel("Longest without progress", "The ten worst.", (Query("topk(10, time() - max by (namespace, trainyard_job) (trainyard_last_progress_timestamp_seconds))", "{{namespace}}/{{trainyard_job}}", instant=True),),
          "s", kind="bargauge", thresholds=(("orange", 120), ("red", 300)), link=JOB),
    Panel("Most waiting for data", "Share of the slowest rank's time, in ten minutes: the ten worst.",
          (Query('topk(10, max by (namespace, trainyard_job) (rate(trainyard_phase_seconds_total{phase="data"}[10m]) / ignoring (phase) sum without (phase) (rate(trainyard_phase_seconds_total[10m]))))',
                 "{{namespace}}/{{trainyard_job}}", instant=True),), "percentunit", kind="bargauge", high=1, thresholds=(("orange", 0.1), ("red", 0.2)), link=JOB),
))

DASHBOARD = Dashboard(
    "trainyard-fleet", "Trainyard / Fleet", "All training jobs: phases, restarts and failures by reason, starts, goodput.",
    (Variable("namespace", "Operator's namespace", "label_values(trainyard_leader, namespace)", everything=True),), (NOW, FAILURES, STARTS, GOODPUT, WORKERS), time_from="now-24h")
